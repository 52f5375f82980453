// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A Rule says which limiters a class of requests spends permits of. Every rule that matches a request applies to it.
// The permits of all their limits are acquired together, all or none.
type Rule struct {
	// Name is for events and errors. It need not be unique.
	Name string
	// Match says which requests the rule is for. The zero Match is for all.
	Match Match
	// Limits are what such a request spends.
	Limits []Limit
	// OnePlatform says that the hosts which Match names, in Hosts or in every pattern, belong to one
	// platform, so that a penalty which one of them announces is for the limiters as a whole. Without it a
	// limiter cools down as a whole only when it is one host's: when the rules of this Transport that have its
	// Name all name one host, or when that has {host} in it. Of any other the requests to the host that announced the penalty
	// wait, in the process that saw it: one receiver of webhooks must not stop those to all others.
	OnePlatform bool
	// DryRun says that the rule holds up no request. The permits of its limits are counted in Redis, and where they are
	// missing [EventRejected] says so, with DryRun. Its limiters do not cool down. Redis delays a request by 100 ms at most.
	DryRun bool
	// Detectors look at the responses to such requests, in this order, before those of [WithDetectors]. The first that
	// returns a Throttled verdict counts.
	Detectors []Detector
}

// A Match is a class of requests. A request belongs to it when every field that is set holds.
type Match struct {
	// Patterns are in the language of [http.ServeMux], "[METHOD ][HOST]/[PATH]" with wildcards such as
	// {name}, {name...} and {$}; one of them must match. As there, GET stands for HEAD too, a path
	// that ends in a slash stands for all below it, and the path is cleaned first: /a//b is /a/b. A
	// host is that of the Host header, in lower case and without its port. Unlike there, several
	// patterns never conflict, and /tree is not redirected to /tree/: it does not match it.
	Patterns []string
	// Hosts are "api.example.com", or "*.example.com" for all below it; the request's must be one of
	// them. Ports do not matter.
	Hosts []string
	// Methods are such as "POST"; the request's must be one of them.
	Methods []string
	// Header holds values that the request's header must have, "*" for any value.
	Header map[string]string
	// Query holds values that the URL's query must have, "*" for any value.
	Query map[string]string
	// Func must return true. It gets a copy of the request whose path values are those of the pattern
	// that matched; it must not change its header nor read its body.
	Func func(*http.Request) bool
}

// A Limit is one limiter that a request spends permits of, and how many.
type Limit struct {
	// Name is the limiter's name in Redis. It may have parts of the request in it:
	//
	//	{host} {method} {path}   the host without its port, the method, the whole cleaned path
	//	{path.NAME}              a wildcard of the pattern that matched
	//	{query.NAME}             a parameter of the query, the first of that name
	//	{header.NAME}            a field of the header, the first of that name
	//
	// An absent part is empty, so that all requests without it share a limiter. What is not a letter,
	// a digit or one of - . _ ~ @ becomes %XX (a slash stays one in {path}), and a part longer than 128
	// bytes its hash. A part that is a secret, or a person's name, is hashed when it reads
	// {query.access_token|hash}: see [Hash] and [WithHashKey]. {{ and }} are braces, for a Redis Cluster's hash tags.
	Name string
	// Key, when set, returns the limiter's name in place of Name, or "" for a request that does not spend this
	// limit. It gets the request as [Match.Func] does. It should pass a secret through [Hash] or [KeyedHash]. A limiter that it
	// names is taken to be spent by requests to the hosts of this rule alone: see [Rule.OnePlatform].
	Key func(*http.Request) string
	// Rate is set when the limiter has no rate yet. A limiter that has another rate keeps it, and
	// [EventRateDiffers] tells of it; see [WithRuleRates]. The zero Rate is for a limiter whose rate is set elsewhere.
	Rate ratelimiter.Rate
	// Quota, when set, is a limiter of another algorithm that has to grant the permits as well, such as a [limit.CalendarQuota].
	// It is looked at before the limiters of the rates are asked, and takes the permits after them: what these have granted stays taken
	// if it rejects now. A request is rejected at once if the quota will not grant it within the time that it may wait. A cool-down is the limiter's that has
	// the Rate. While Redis is unavailable the outage policy decides, without the quota. Settle does not settle it, and a dry run does not count it.
	Quota limit.Limiter
	// Weight is how many permits a request spends. The default is 1.
	Weight int64
	// WeightFunc, when set, returns the weight in place of Weight, or 0 for a request that does not spend this
	// limit. It gets the request as [Match.Func] does.
	WeightFunc func(*http.Request) int64
	// LeaveFree, when set, makes such requests of a lower class: they are sent only if that many permits stay free, in
	// all processes, for the requests of other rules that spend the same limiter without it. See
	// [ratelimiter.RateLimiter.LeaveFree]. A request that several limits have spend the limiter leaves free what the most
	// of them says.
	LeaveFree int64
	// LeaveFreeFor is for how long a request that waits is of the lower class; then it is like any other. The default is
	// ten seconds.
	LeaveFreeFor time.Duration
	// Settle, when set, returns how many permits the request turned out to need: less gives the rest back, more is taken
	// whatever is left; see [ratelimiter.Grant.Settle]. -1 leaves what was spent. It is called once, when the caller has
	// read the body to its end or closes it, with a copy of the response whose Body is the end of what the caller read,
	// MaxPeek bytes at most: of a stream the last events. What Weight or WeightFunc says is what the request needs at
	// first. A request without a response stays as it was, and so does one that an outage policy granted.
	Settle func(*http.Response) int64
	// Scope names the platform's limit that this one keeps, so that a [Verdict] with that scope cools
	// down this limiter and not the others.
	Scope Scope
	// OutagePolicy is what happens while Redis is unavailable. The default is the policy of the Client.
	OutagePolicy *ratelimiter.OutagePolicy
	// Reopen is how long the limiter takes to open again, gradually, after a cool-down. The default is
	// to open at once.
	Reopen time.Duration
}

// A Profile holds a platform's limits as rules: which requests spend which limiters, at what rates and how far apart,
// which responses mean that the platform throttled a request, and what happens during an outage of Redis. Package platform makes those of some platforms; their rules may be changed and added to.
//
// A limiter keeps the rate that it has in Redis. After a change of a number in a profile
// [EventRateDiffers] says so; ratelimiter's SetRate changes it, or [WithRuleRates].
type Profile struct {
	// Name is the platform's.
	Name string
	// Rules are in the order in which their detectors are asked.
	Rules []Rule
}

// ErrInvalidRule is the error of a rule that cannot be used. It is wrapped with the field and what is wrong with it.
var ErrInvalidRule = errors.New("httplimit: invalid rule")

// A FieldError says what is wrong with one field of a rule: errors.Is(err, [ErrInvalidRule]) holds for it.
type FieldError struct {
	// Field is the way to the field as in a rule file: "rules[0].limits[1].interval".
	Field string
	// Problem is what is wrong, with the value.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Is reports whether target is ErrInvalidRule.
func (e *FieldError) Is(target error) bool { return target == ErrInvalidRule }

// A problems is a list of field errors with the way to where it looks.
type problems struct {
	at   string
	list *[]error
}

func (p problems) in(format string, args ...any) problems {
	return problems{p.at + fmt.Sprintf(format, args...), p.list}
}

func (p problems) add(field, format string, args ...any) {
	at := strings.Trim(p.at+"."+field, ".")
	*p.list = append(*p.list, &FieldError{Field: at, Problem: fmt.Sprintf(format, args...)})
}
