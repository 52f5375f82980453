package compat_test

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

type shareRun struct {
	rate                   int
	interval               time.Duration
	think                  time.Duration
	lasts                  time.Duration
	timeout                time.Duration
	goCallers, javaThreads int
}

func (r shareRun) measure(t testing.TB, v version, ps ...*peer) (goN int, javaN []int, members []redis.Z) {
	rdb := redistest.Client(t)
	name := redistest.Key(t)
	require.True(t, ps[0].truth(t, "trySetRate", name, "OVERALL", r.rate, r.interval))
	ctx, cancel := context.WithTimeout(t.Context(), r.lasts)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	var goAt []time.Time
	var javaAt [][]time.Time = make([][]time.Time, len(ps))
	for i, p := range ps {
		if r.javaThreads == 0 {
			continue
		}
		wg.Go(func() {
			mode := "block"
			if r.timeout > 0 {
				mode = fmt.Sprintf("wait:%d", r.timeout.Milliseconds())
			}
			call := p.begin("hammer", name, r.javaThreads, r.lasts, "1", mode, 1, r.think)
			time.Sleep(time.Until(began.Add(r.lasts)))
			time.Sleep(50 * time.Millisecond)
			call.cancel()
			text, err := call.wait(60 * time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			l, err := parseLoad(text)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, g := range l.grants {
				javaAt[i] = append(javaAt[i], g.at)
			}
		})
	}
	client := ratelimiter.New(rdb)
	defer client.Close()
	for range r.goCallers {
		wg.Go(func() {
			l := client.RateLimiter(name)
			for ctx.Err() == nil {
				var ok bool
				var err error
				if r.timeout > 0 {
					ok, err = l.TryAcquire(ctx, 1, r.timeout)
				} else {
					err = l.Acquire(ctx, 1)
					ok = err == nil
				}
				if err == nil && ok {
					mu.Lock()
					goAt = append(goAt, time.Now())
					mu.Unlock()
					time.Sleep(r.think)
				}
			}
		})
	}
	wg.Wait()
	skip := began.Add(2 * r.interval)
	end := began.Add(r.lasts)
	n := func(at []time.Time) (k int) {
		for _, x := range at {
			if x.After(skip) && x.Before(end) {
				k++
			}
		}
		return k
	}
	goN = n(goAt)
	for _, at := range javaAt {
		javaN = append(javaN, n(at))
	}
	members, _ = rdb.ZRangeWithScores(context.Background(), "{"+name+"}:permits", 0, -1).Result()
	return
}

func TestSharesMeasure(t *testing.T) {
	if os.Getenv("RATELIMITER_COMPAT_LONG") == "" {
		t.Skip()
	}
	secs, _ := time.ParseDuration(os.Getenv("LASTS"))
	if secs == 0 {
		secs = 15 * time.Second
	}
	for _, v := range allVersions {
		switch v.name {
		case "3.15.5", "3.34.1", "3.52.0", "4.7.0":
		default:
			continue
		}
		if want := os.Getenv("VERSION"); want != "" && want != v.name {
			continue
		}
		p := fleet.peer(t, v)
		for _, r := range []shareRun{
			{rate: 10, interval: time.Second},
			{rate: 100, interval: time.Second},
			{rate: 10, interval: time.Second, think: 50 * time.Millisecond},
			{rate: 10, interval: time.Second, think: 200 * time.Millisecond},
			{rate: 10, interval: time.Second, timeout: 5 * time.Second},
			{rate: 10, interval: 200 * time.Millisecond},
			{rate: 10, interval: 100 * time.Millisecond},
		} {
			r.lasts, r.goCallers, r.javaThreads = secs, 8, 8
			if want := os.Getenv("ROW"); want != "" && want != fmt.Sprint(r.rate, r.interval, r.think, r.timeout) {
				continue
			}
			g, j, _ := r.measure(t, v, p)
			most := float64(r.rate) * float64(r.lasts-2*r.interval) / float64(r.interval)
			fmt.Printf("%s %d/%v think %v timeout %v: go %d java %v  java share %.1f%% throughput %.1f%%\n", v, r.rate, r.interval, r.think, r.timeout, g, j,
				100*float64(j[0])/float64(g+j[0]), 100*float64(g+j[0])/most)
		}
	}
}

// lag of Java alone.
func TestSharesLag(t *testing.T) {
	if os.Getenv("RATELIMITER_COMPAT_LONG") == "" {
		t.Skip()
	}
	for _, v := range allVersions {
		switch v.name {
		case "3.15.5", "3.34.1", "3.52.0", "4.7.0":
		default:
			continue
		}
		p := fleet.peer(t, v)
		rdb := redistest.Client(t)
		name := redistest.Key(t)
		require.True(t, p.truth(t, "trySetRate", name, "OVERALL", 10, time.Second))
		var scores []float64
		seen := map[string]bool{}
		call := p.begin("hammer", name, 8, 12*time.Second, "1", "block")
		for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			zs, err := rdb.ZRangeWithScores(t.Context(), "{"+name+"}:permits", 0, -1).Result()
			require.NoError(t, err)
			for _, z := range zs {
				if !seen[z.Member.(string)] {
					seen[z.Member.(string)] = true
					scores = append(scores, z.Score)
				}
			}
		}
		call.cancel()
		call.wait(20 * time.Second)
		sort.Float64s(scores)
		var lag []int
		for i := 10; i < len(scores); i++ {
			lag = append(lag, int(scores[i]-scores[i-10]-1000))
		}
		sort.Ints(lag)
		fmt.Println(v, "n", len(lag), "lags", lag)
	}
}

func TestSharesReopen(t *testing.T) {
	if os.Getenv("RATELIMITER_COMPAT_LONG") == "" {
		t.Skip()
	}
	for _, v := range allVersions {
		if want := os.Getenv("VERSION"); v.name != "4.7.0" && v.name != "3.15.5" || want != "" && want != v.name {
			continue
		}
		p := fleet.peer(t, v)
		rdb := redistest.Client(t)
		for _, r := range []struct {
			rate   int
			reopen time.Duration
		}{{10, 3 * time.Second}, {100, 3 * time.Second}, {100, 1500 * time.Millisecond}} {
			name := redistest.Key(t)
			require.True(t, p.truth(t, "trySetRate", name, "OVERALL", r.rate, time.Second))
			client := ratelimiter.New(rdb)
			l := client.RateLimiter(name)
			begin := time.Now()
			require.NoError(t, l.CoolDown(t.Context(), begin.Add(2*time.Second), ratelimiter.Reopen(r.reopen)))
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			call := p.begin("hammer", name, 8, 8*time.Second, "1", "block")
			var mu sync.Mutex
			var wg sync.WaitGroup
			goN, javaN := make([]int, 40), make([]int, 40)
			for range 8 {
				wg.Go(func() {
					for l.Acquire(ctx, 1) == nil {
						mu.Lock()
						goN[time.Since(begin)/(500*time.Millisecond)]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			cancel()
			call.cancel()
			text, err := call.wait(20 * time.Second)
			require.NoError(t, err)
			ld, err := parseLoad(text)
			require.NoError(t, err)
			for _, g := range ld.grants {
				javaN[g.at.Sub(begin)/(500*time.Millisecond)]++
			}
			fmt.Println("reopen", v, r.rate, r.reopen, "go", goN[:16], "java", javaN[:16])
			client.Close()
		}
	}
}
