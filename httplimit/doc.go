// SPDX-License-Identifier: Apache-2.0

// Package httplimit keeps the HTTP requests that a fleet sends within limits that it shares through Redis.
//
// A [Transport] wraps any [http.RoundTripper]: before a request leaves it takes permits from
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
// The httpClient goes wherever a client is accepted; SDKs as a rule do. A request that is rejected was
// not sent, and its error is an [*Error] for which errors.Is(err, [ErrRejected]) holds. The text of an error of
// http.Client has the URL in it with whatever secrets that has: log what [Redact] makes of it.
//
// Package platform has the rules of some platforms and the detectors of their rejections, and package rulefile
// reads rules from a YAML or JSON file. Package inbound is for the requests that a server gets. All three are
// apart, so that this one links nothing but what the limiter itself needs.
package httplimit
