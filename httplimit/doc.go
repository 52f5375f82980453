// Package httplimit keeps HTTP requests within limits that a whole fleet shares through Redis.
//
// Outbound, a [Transport] wraps any [http.RoundTripper]: before a request leaves it takes permits from
// every limiter that the request's [Rule]s name, all or nothing, and waits for them as long as the
// request's context allows. What the platform answers is shown to [Detector]s; when one sees that the
// platform throttled the call, the limiters of that host or platform cool down and nobody in the fleet,
// Redisson in Java included, gets a permit before the penalty ends.
//
//	transport, err := httplimit.New(client, httplimit.WithRules(httplimit.Rule{
//		Match:  httplimit.Match{Patterns: []string{"POST api.example.com/messages/"}},
//		Limits: []httplimit.Limit{{Name: "example:messages", Rate: ratelimiter.Rate{Permits: 20, Interval: time.Second}}},
//	}))
//	httpClient := &http.Client{Transport: transport}
//
// The httpClient goes wherever a client is accepted; SDKs as a rule do. A request that is refused was
// not sent, and its error is an [*Error] for which errors.Is(err, [ErrThrottled]) holds.
//
// Rules can come from a YAML or JSON file too: package rulefile, apart so that this one links nothing
// but what the limiter itself needs.
package httplimit
