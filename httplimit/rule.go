// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit"
)

// A Rule says which limiters a class of requests takes permits from. What a server receives has inbound.Rule, which is one
// limit of every request and so has no Match. Every rule that matches a request applies to it.
// The permits of all their limits are acquired together, all or none.
type Rule struct {
	// Name identifies the rule in events and errors. It need not be unique.
	Name string
	// Match says which requests the rule applies to. The zero Match matches all requests.
	Match Match
	// Limits are the limiters that such a request takes permits from.
	Limits []Limit
	// OnePlatform says that all hosts of Match, which are in Hosts or in every pattern, belong to one platform. Then a
	// penalty that one of them announces cools down the limiters as a whole.
	//
	// Without OnePlatform, a limiter cools down as a whole only if it belongs to one host. That is so if all rules of
	// this Transport that use its Name name the same host, or if its Name contains {host}. For any other limiter, only
	// the requests to the host that announced the penalty wait, and only in the process that received it: one receiver
	// of webhooks must not stop the requests to all others.
	OnePlatform bool
	// DryRun says that the rule delays and rejects no request. Redis counts the permits of its limits; if permits are
	// missing, [EventRejected] says so, with DryRun. Its limiters do not cool down. Redis delays a request by 100 ms
	// at most.
	DryRun bool
	// Detectors look at the responses to such requests, in this order, before those of [WithDetectors]. The first
	// verdict that is Throttled counts.
	Detectors []Detector
	// Rejection is the platform's form of the responses of [WithRejectionResponse]. If several rules of a request have
	// one, that of the first counts. The default is the form of WithRejectionResponse.
	Rejection RejectionForm
}

// A Match is a class of requests. A request belongs to it when every field that is set holds.
type Match struct {
	// Patterns use the syntax of [http.ServeMux], "[METHOD ][HOST]/[PATH]" with wildcards such as {name}, {name...}
	// and {$}; one of them must match. As there, GET matches HEAD too, a path that ends in a slash matches everything
	// below it, and the path is cleaned first: /a//b is /a/b. An escaped dot counts as a dot there, so /a/%2E/b is /a/b.
	// A path in which an escaped slash is a slash, as it is to many servers, matches too: /a%2Fb belongs to both /{x} and
	// /a/b. The host is compared with the Host header, in lower case and without its port. Unlike there, several patterns never conflict, /tree does not match /tree/, because
	// nothing is redirected, and the method is one of those that Methods may have.
	Patterns []string
	// Hosts are "api.example.com", or "*.example.com" for all names below it; the request's host must be one of them.
	// Ports do not matter. Unicode and Punycode forms of an internationalized name are the same, and so are all forms
	// of an IPv4 address, such as 127.0.0.1, 0x7f.1 and [::ffff:127.0.0.1]. A wildcard never matches an address.
	Hosts []string
	// Methods are HTTP methods such as "POST", in upper case; the request's method must be one of them.
	Methods []string
	// Header has values that fields of the request's header must have; "*" means any value.
	Header map[string]string
	// Query has values that parameters of the URL's query must have; "*" means any value.
	Query map[string]string
	// Func must return true. It gets a copy of the request with the path values of the pattern that matched. It must
	// not change the header or read the body.
	Func func(*http.Request) bool
}

// A Limit is one limiter that a request takes permits from, and how many.
type Limit struct {
	// Name is the limiter's name in Redis. It may contain parts of the request:
	//
	//	{host} {method} {path}   the host without its port, the method, the whole cleaned path
	//	{path.NAME}              a wildcard of the pattern that matched
	//	{query.NAME}             a parameter of the query, the first of that name
	//	{header.NAME}            a field of the header, the first of that name
	//
	// An absent part is empty, so all requests without it share a limiter. Every byte that is not a letter, a digit or
	// one of - . _ ~ @ becomes %XX (except a slash in {path}), and a part longer than 128 bytes is replaced by its
	// hash. To hash a part that is a secret, or a person's name, write {query.access_token|hash}: see [Hash] and
	// [WithHashKey]. {{ and }} are braces, for a Redis Cluster's hash tags.
	Name string
	// Key, if set, returns the limiter's name in place of Name, or "" if the request does not take permits from this
	// limit. It gets the request as [Match.Func] does. It should pass secrets through [Hash] or [KeyedHash]. A limiter
	// that Key names is assumed to serve the hosts of this rule alone: see [Rule.OnePlatform].
	Key func(*http.Request) string
	// Rate is the rate that a limiter gets if it has none yet. A limiter that has another rate keeps it, and
	// [EventRateDiffers] reports that; see [WithRuleRates]. The zero Rate is for a limiter whose rate is set
	// elsewhere, or is that of a Quota alone.
	Rate ratelimiter.Rate
	// Quota, if set, is a limiter of another algorithm, such as the month's tokens as a [limit.CalendarQuota]. With a
	// Rate, both have to grant the permits. Without one the quota is the whole limit, and Name, or Key, names it in
	// errors and events.
	//
	// Quotas are checked before the limiters of the rates are asked, and their permits are taken after theirs. If a
	// quota rejects only then, the permits of the rates stay taken, except those of limits with Settle, and the request is
	// rejected unless all that it took could be given back. It is rejected at once if the quota will not grant it within the time that it may wait,
	// and with [ReasonRule] if its limits take more permits of one quota together than that grants a request (see [limit.MaxPerCall]). Settle settles the quota as
	// well, for which it has to be a *[limit.Shared] or a *[limit.Local] whose grants can be settled.
	//
	// A cool-down applies to the limiter with the Rate. That of a quota alone is known to this process only. While
	// Redis is unavailable the outage policies of the rates decide, without the quotas. A dry run counts no quota.
	Quota limit.Limiter
	// Weight is how many permits a request takes. 0 means 1, and a negative one is an error of New.
	Weight int64
	// WeightFunc, if set, returns the weight in place of Weight, or 0 if the request does not take permits from this
	// limit. It gets the request as [Match.Func] does.
	WeightFunc func(*http.Request) int64
	// LeaveFree, if set, makes these requests leave permits free for others. They are sent only if at least LeaveFree
	// permits stay free, in all processes, for the requests of other rules that use the same limiter without it. See
	// [ratelimiter.RateLimiter.LeaveFree]. If several limits of a request use the limiter, the largest LeaveFree
	// counts.
	LeaveFree int64
	// LeaveFreeFor is how long a waiting request leaves permits free; after that it is like any other. The default is
	// ten seconds.
	LeaveFreeFor time.Duration
	// Settle, if set, returns how many permits the request actually needed. If it is less, the rest is given back; if
	// it is more, the difference is taken even if fewer permits are left; see [ratelimiter.Grant.Settle]. After -1 the
	// permits keep the number that was spent, and [EventUnsettled] says so. So they do after more than a hundred times the
	// permits of Rate, or the weight if that is larger: a number that a platform got wrong must not close the limiter for
	// months. A Limit without a Rate has no such bound.
	//
	// Settle is called once, in a goroutine of its own, with a copy of the response. Its Body is what the caller
	// reads, from the first byte to the last, decoded if it is gzip or deflate. Settle must read it as it arrives and
	// keep no more of it than it needs: the caller's Read returns only when Settle has read that part, or has
	// returned. The Body ends with io.EOF, and the Trailer is complete, when the caller has read all of it. It ends
	// with another error if the caller closes it before, or if it cannot be read. Then the permits are settled.
	//
	// Weight or WeightFunc says what the request needs at first. That stays for a request without a response, and for
	// one that an outage policy granted. A request that a detector found throttled needed no permits, unless Settle
	// says otherwise.
	Settle func(*http.Response) int64
	// Scope names the limit of the platform that this Limit keeps. A [Verdict] with that scope cools down this limiter
	// and not the others.
	Scope Scope
	// OutagePolicy decides requests while Redis is unavailable. The default is the policy of the Client.
	OutagePolicy *ratelimiter.OutagePolicy
	// Reopen is how long the limiter takes to open again gradually after a cool-down. The default is to open at once.
	Reopen time.Duration
}

// A Profile holds a platform's limits as rules. They say which requests take permits from which limiters, at what
// rates and how far apart, which responses mean that the platform throttled a request, and what happens during an
// outage of Redis. Package platform makes profiles of some platforms; you may change their rules and add to them.
//
// A limiter keeps the rate that it has in Redis. After a change of a number in a profile, [EventRateDiffers] reports
// the difference; change the rate with SetRate of package ratelimiter, or use [WithRuleRates].
type Profile struct {
	// Name is the platform's.
	Name string
	// Rules are in the order in which their detectors are asked.
	Rules []Rule
}

// A FieldError says what is wrong with one field of a rule: errors.Is(err, [ratelimiter.ErrInvalidArgument]) holds for it.
type FieldError struct {
	// Field is the path of the field as in a rule file: "rules[0].limits[1].interval".
	Field string
	// Problem describes the problem, with the value.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Is reports whether target is ratelimiter.ErrInvalidArgument.
func (e *FieldError) Is(target error) bool { return target == ratelimiter.ErrInvalidArgument }

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
