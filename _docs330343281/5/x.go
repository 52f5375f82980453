package x

import (
	"context"
	"errors"
	"fmt"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/limit"
	"github.com/redis/go-redis/v9"
	"net/http"
	"strings"
	"time"
)

func block() error {
	transport, err := httplimit.New(client, httplimit.WithRules(httplimit.Rule{
		Match:  httplimit.Match{Patterns: []string{"POST api.example.com/messages/"}},
		Limits: []httplimit.Limit{{Name: "example:messages", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
	}))
	if err != nil {
		return err
	}
	api := &http.Client{Transport: transport}
	resp, err := api.Post("https://api.example.com/messages/", "text/plain", strings.NewReader("hello"))
	var rejected *httplimit.Error
	if errors.As(err, &rejected) { // the request was not sent
		return fmt.Errorf("%s: try again in %v", rejected.Limiter, rejected.Wait)
	}
	if err != nil {
		return httplimit.Redact(err) // without the secrets in the URL
	}
	defer resp.Body.Close()
	return nil
}

var (
	ctx    context.Context
	client *ratelimiter.Client
	rdb    *redis.Client
	mux    *http.ServeMux
	w      http.ResponseWriter
	r      *http.Request
	rules  []httplimit.Rule
	text   []byte
	userID string
	api    *limit.Shared

	newMine func(permits int, interval time.Duration) limit.Limiter
	ask     func(context.Context) error // a call of an SDK
	send    func(context.Context) error
)
