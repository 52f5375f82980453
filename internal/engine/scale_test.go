package engine_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/engine"
	"github.com/goredisson/ratelimiter/internal/engine/enginetest"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// BenchmarkForgedNames makes one request for each of many limiters while their server is away. Each of them has a
// local share.
func BenchmarkForgedNames(b *testing.B) {
	s := enginetest.New(b)
	p := s.Process()
	e := engine.New(engine.Config{Backends: p, Recheck: time.Second, OutageLimit: 30 * time.Second})
	defer e.Close()
	p.Cut(enginetest.Refused)
	policy := localShare(overall(10, 10*time.Second), 2)
	try := func(i int) error {
		key := "forged-" + strconv.Itoa(i)
		h := e.Handle(key, key, p.Limiter(key))
		_, err := h.Acquire(context.Background(), engine.Request{Permits: 1, Policy: policy})
		return err
	}
	_ = try(-1)
	time.Sleep(10 * time.Second) // until the share begins
	answered, refused := 0, 0
	for i := 0; b.Loop(); i++ {
		if err := try(i); errors.Is(err, permit.ErrUnavailable) {
			refused++
		} else {
			answered++
		}
	}
	b.ReportMetric(float64(answered), "answered")
	b.ReportMetric(float64(refused), "unavailable")
}
