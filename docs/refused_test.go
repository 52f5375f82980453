// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"errors"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit/inbound"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A refusal makes a limiter reject a request although permits seem to be left. Its names are those of two limiters.
type refusal struct {
	t    *testing.T
	rdb  *redis.Client
	name string
	down atomic.Bool // Redis, for the clients that downable returns
}

func (x *refusal) client(opts ...ratelimiter.Option) *ratelimiter.Client {
	if !redistest.TTLsAreVirtual() {
		opts = append(opts, ratelimiter.WithClientClock())
	}
	c := redistest.Must(ratelimiter.New(x.rdb, opts...))(x.t)
	x.t.Cleanup(func() { _ = c.Close() })
	return c
}

// limiter returns the limiter of a new Client, with five permits in ten seconds.
func (x *refusal) limiter(opts ...ratelimiter.Option) *ratelimiter.RateLimiter {
	return x.client(opts...).RateLimiter(x.name).WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
}

func (x *refusal) take(l *ratelimiter.RateLimiter, n int64) {
	require.True(x.t, x.asks(l, n))
}

func (x *refusal) asks(l *ratelimiter.RateLimiter, n int64) bool {
	return redistest.Must(l.Allow(x.t.Context(), n))(x.t).Granted
}

// left checks that a look at the limiter shows permits left.
func (x *refusal) left(l *ratelimiter.RateLimiter, n int64) {
	require.Equal(x.t, n, redistest.Must(l.AvailablePermits(x.t.Context()))(x.t))
}

// provoked has a case for each cause that troubleshooting.md lists; each returns whether the last request was granted.
var provoked = map[string]func(x *refusal) bool{
	"other-limiter": func(x *refusal) bool {
		api := redistest.Must(inbound.New(x.client(), x.name, ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second},
			inbound.WithKeys(inbound.ByClientAddress(inbound.ClientAddress{Trusted: []netip.Prefix{}}))))(x.t)
		require.NoError(x.t, api.Start(x.t.Context()))
		var last inbound.Decision
		for range 6 {
			last = api.DecideRequest(httptest.NewRequest("GET", "/", nil))
		}
		require.Equal(x.t, x.name+":192.0.2.1", last.Limiter)
		x.left(x.client().RateLimiter(x.name), 5)
		return last.Passes()
	},
	"rate": func(x *refusal) bool {
		x.take(x.limiter(), 5)
		return x.asks(x.client().RateLimiter(x.name).WithRate(ratelimiter.Rate{Permits: 100, Interval: 10 * time.Second}), 1)
	},
	"size": func(x *refusal) bool {
		l := x.limiter()
		x.take(l, 3)
		x.left(l, 2)
		return x.asks(l, 3)
	},
	"cool-down": func(x *refusal) bool {
		l := x.limiter()
		x.take(l, 1)
		require.NoError(x.t, l.CoolDown(x.t.Context(), time.Now().Add(time.Minute)))
		return x.asks(l, 1)
	},
	"gap": func(x *refusal) bool {
		l := x.client().RateLimiter(x.name).WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second, MinGap: 2 * time.Second})
		x.take(l, 1)
		s := redistest.Must(l.Admin().Inspect(x.t.Context()))(x.t)
		require.Equal(x.t, "4", s.Value)
		return x.asks(l, 1)
	},
	"leave-free": func(x *refusal) bool {
		l := x.limiter()
		x.take(l, 2)
		require.True(x.t, redistest.Must(l.Peek(x.t.Context(), 1))(x.t).Granted)
		x.left(l, 3)
		return x.asks(l.LeaveFree(3, time.Minute), 1)
	},
	"cached": func(x *refusal) bool {
		l, other := x.limiter(ratelimiter.WithCachedRejections(time.Second)), x.limiter()
		x.take(l, 5)
		require.False(x.t, x.asks(l, 1))
		require.NoError(x.t, other.Release(x.t.Context(), 5))
		x.left(other, 5)
		return x.asks(l, 1)
	},
	"queue": func(x *refusal) bool {
		l := x.limiter()
		x.take(l, 1)
		ctx, cancel := context.WithCancel(x.t.Context())
		done := make(chan error)
		go func() { done <- l.Acquire(ctx, 5) }()
		time.Sleep(time.Second)
		ok := redistest.Must(l.TryAcquire(x.t.Context(), 1, 2*time.Second))(x.t)
		cancel()
		<-done
		x.left(l, 4)
		return ok
	},
	"list": func(x *refusal) bool {
		c := x.client()
		full := c.RateLimiter(x.name).WithRate(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second})
		empty := c.RateLimiter(x.name + "-2").WithRate(ratelimiter.Rate{Permits: 1, Interval: 10 * time.Second})
		x.take(full, 1)
		x.take(empty, 1)
		r := redistest.Must(c.TryAcquireAll(x.t.Context(), 0, ratelimiter.Demand{Limiter: full, Permits: 1}, ratelimiter.Demand{Limiter: empty, Permits: 1}))(x.t)
		require.Equal(x.t, empty.Name(), r.RejectedBy.Name())
		x.left(full, 4)
		return r.Granted
	},
	"early": func(x *refusal) bool {
		l := x.limiter(ratelimiter.WithEarlyRejection())
		x.take(l, 3)
		began := time.Now()
		ok := redistest.Must(l.TryAcquire(x.t.Context(), 3, 5*time.Second))(x.t)
		require.Less(x.t, time.Since(began), time.Second)
		return ok
	},
	"per-client": func(x *refusal) bool {
		rate := ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 5, Interval: 10 * time.Second}
		mine, theirs := x.client().RateLimiter(x.name).WithRate(rate), x.client().RateLimiter(x.name)
		x.take(mine, 5)
		x.left(theirs, 5)
		return x.asks(mine, 1)
	},
	"local-quota": func(x *refusal) bool {
		l := x.limiter(ratelimiter.WithOutagePolicy(ratelimiter.LocalQuota(ratelimiter.Rate{Permits: 5, Interval: 10 * time.Second}, 2)))
		x.take(l, 1)
		o := x.rdb.Options()
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if x.down.Load() {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			return dial(ctx, network, addr)
		}
		x.down.Store(true)
		defer x.down.Store(false)
		r := redistest.Must(l.Allow(x.t.Context(), 1))(x.t)
		require.True(x.t, r.Degraded)
		return r.Granted
	},
	"clock": func(x *refusal) bool {
		l := x.limiter()
		x.take(l, 1)
		s := redistest.Must(l.Admin().Inspect(x.t.Context()))(x.t)
		require.NoError(x.t, x.rdb.ZIncrBy(x.t.Context(), "{"+l.Name()+"}:permits", 60_000, string(s.Members[0].Raw)).Err())
		time.Sleep(11 * time.Second) // after which the grant would have expired
		return x.asks(l, 5)
	},
}

// unprovoked are the causes that the page lists and no test here provokes, with the reason.
var unprovoked = map[string]string{
	"lost":         "a call of ours repairs it and is granted; compat_test has Java's",
	"acl":          "miniredis has no ACL; TestRights checks what a limiter needs",
	"looked-later": "no state of the limiter",
	"others":       "internal/test/explore has every order of such steps",
	"quota":        "httplimit's tests have it",
}

// TestRefusedButItLooksFull provokes each cause that troubleshooting.md lists, and checks that it lists each that is provoked, each
// Reason of httplimit, and each option by which a request may be rejected.
func TestRefusedButItLooksFull(t *testing.T) {
	redistest.NoServer(t)
	_, section, _ := strings.Cut(pages(t)["docs/troubleshooting.md"], "## Refused, but it looks full\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile(`<a id="refused-([a-z-]+)">`).FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	require.ElementsMatch(t, slices.Concat(slices.Collect(maps.Keys(provoked)), slices.Collect(maps.Keys(unprovoked))), listed)
	for name, provoke := range provoked {
		t.Run(name, func(t *testing.T) {
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				x := &refusal{t: t, rdb: rdb, name: redistest.Key(t)}
				rdb.AddHook(x)
				require.False(t, provoke(x), "it was granted")
			})
		})
	}

	reasons := constants(t, "httplimit", "Reason")
	require.Len(t, reasons, 6)
	for _, reason := range reasons {
		require.Contains(t, section, "| `"+reason+"` |")
	}
	// What reports a rejection does not cause it.
	reports := []string{"LogHook", "WithDecisions", "WithRejection", "WithXRateLimit", "WithLimiterHeader", "WithRejectionResponse", "RejectionOf", "HTTPDetector",
		"ContextWithReason", "WithDryRun", "NewRules", "First", "WithHook", "WithoutCachedRejections", "KeepState"}
	found := 0
	for _, dir := range []string{".", "httplimit", "httplimit/inbound"} {
		p, _ := documentation(t, dir)
		funcs := slices.Clone(p.Funcs)
		for _, typ := range p.Types {
			funcs = append(funcs, typ.Funcs...)
			if typ.Name == "RateLimiter" {
				funcs = append(funcs, slices.DeleteFunc(slices.Clone(typ.Methods), func(f *doc.Func) bool {
					r := f.Decl.Type.Results // handles alone
					return r == nil || len(r.List) != 1 || !isHandle(r.List[0].Type)
				})...)
			}
		}
		for _, f := range funcs {
			if regexp.MustCompile(`\brejects?\b|\brejected\b|leaves? permits free`).MatchString(f.Doc) && !slices.Contains(reports, f.Name) {
				found++
				require.Regexp(t, `\b`+f.Name+`\b`, section, "troubleshooting.md says nothing of %s", f.Name)
			}
		}
	}
	require.Greater(t, found, 6)
}

func isHandle(e ast.Expr) bool {
	if s, ok := e.(*ast.StarExpr); ok {
		id, ok := s.X.(*ast.Ident)
		return ok && id.Name == "RateLimiter"
	}
	return false
}

// constants returns the texts of the constants of a type of the package in dir.
func constants(t *testing.T, dir, typ string) (list []string) {
	for _, path := range redistest.Must(filepath.Glob(filepath.Join(dir, "*.go")))(t) {
		src := redistest.Must(os.ReadFile(path))(t)
		ast.Inspect(redistest.Must(parser.ParseFile(token.NewFileSet(), path, src, 0))(t), func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == typ {
					list = append(list, redistest.Must(strconv.Unquote(v.Values[0].(*ast.BasicLit).Value))(t))
				}
			}
			return true
		})
	}
	return list
}

// The hook of a client that loses Redis.

func (x *refusal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (x *refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if x.down.Load() {
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

func (x *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if x.down.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(errLost)
			}
			return errLost
		}
		return next(ctx, cmds)
	}
}

var errLost = errors.New("dial tcp: connect: connection refused")
