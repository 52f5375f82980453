// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
)

// ErrInvalidOption is the error of an option that is out of range.
var ErrInvalidOption = errors.New("gateway: invalid option")

// DefaultMaxWait is how long a request waits for permits unless [WithMaxWait] says otherwise.
const DefaultMaxWait = 30 * time.Second

// errStopping is the cause with which Shutdown ends the requests that wait for permits.
var errStopping = errors.New("the gateway is stopping")

// A Gateway is an http.Handler that forwards requests to the hosts of its rules, within their limits. It streams
// bodies in both directions, and follows no redirects. The zero value is not usable; make one with [New]. A Gateway
// is safe for concurrent use.
type Gateway struct {
	client    *ratelimiter.Client
	cfg       config
	proxy     *httputil.ReverseProxy
	transport *httplimit.Transport
	hosts     atomic.Pointer[hosts]
	reload    sync.Mutex // of Reload: the hosts and the rules are those of one call
	tunnels   *tunnels   // nil without a CA

	stopping context.Context // ends with Shutdown
	stop     context.CancelCauseFunc
}

type config struct {
	allow   []string
	base    http.RoundTripper
	maxWait time.Duration
	token   *[sha256.Size]byte
	tokens  []string
	ca      *CA
	log     *slog.Logger
	options []httplimit.Option
}

// An Option configures a Gateway.
type Option func(*config)

// WithAllow allows hosts in addition to those that the rules name. Requests to them take permits from the limits of
// all rules that match.
//
//	api.example.com            https on port 443, and http on port 80 for a client that uses a proxy
//	*.example.com              the same for all names below it
//	api.example.com:8443       https on that port
//	http://127.0.0.1:8080      plain http
//	http://[::1]:8080          the same; with a zone it is [fe80::1%25eth0], as in a URL
//
// A "*." never matches an address, in whatever form the request has it. By default only the hosts of the rules are
// allowed.
func WithAllow(hosts ...string) Option {
	return func(c *config) { c.allow = append(c.allow, hosts...) }
}

// WithBase sets the RoundTripper that sends the requests. The default is like http.DefaultTransport, but does not
// decode bodies, keeps more idle connections, and ignores the proxies of the environment.
func WithBase(base http.RoundTripper) Option { return func(c *config) { c.base = base } }

// WithMaxWait sets how long a request waits for permits at most. A request's "Prefer: wait=N" can only shorten it.
// The default is [DefaultMaxWait].
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithToken requires the token from every client, in [TokenHeader], or in Proxy-Authorization as a Bearer token or as
// the password of Basic. The Gateway does not send these fields to the platform. By default no token is required.
func WithToken(token string) Option { return func(c *config) { c.tokens = append(c.tokens, token) } }

// WithCA lets clients tunnel https through the Gateway with CONNECT. The Gateway ends TLS with certificates that the
// CA signs, for allowed hosts only. By default there is no CA, and CONNECT is rejected.
func WithCA(ca *CA) Option { return func(c *config) { c.ca = ca } }

// WithLogger sets the logger of requests. Each record has the method, the URL without its query and secrets, the
// status and the times. By default requests are not logged.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithTransport adds options of the httplimit.Transport, such as httplimit.WithEvents. The WithBase and WithMaxWait
// of this package override those of httplimit, and the rules passed to New override those of an option.
func WithTransport(opts ...httplimit.Option) Option {
	return func(c *config) { c.options = append(c.options, opts...) }
}

// New returns a Gateway whose limiters are those of client, which the caller closes. It returns [ErrInvalidOption]
// for an option that is out of range, and the errors of httplimit.New for a rule that is wrong.
func New(client *ratelimiter.Client, rules []httplimit.Rule, opts ...Option) (*Gateway, error) {
	g := &Gateway{client: client, cfg: config{maxWait: DefaultMaxWait, log: slog.New(slog.DiscardHandler)}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an Option is nil", ErrInvalidOption)
		}
		o(&g.cfg)
	}
	if err := g.cfg.validate(); err != nil {
		return nil, err
	}
	if g.cfg.base == nil {
		g.cfg.base = defaultBase()
	}
	var err error
	if g.transport, err = httplimit.New(client, append(g.cfg.options, httplimit.WithBase(sender{g.cfg.base}), httplimit.WithMaxWait(g.cfg.maxWait),
		httplimit.WithRejectionResponse())...); err != nil {
		return nil, err
	}
	if err := g.Reload(rules); err != nil {
		return nil, err
	}
	g.stopping, g.stop = context.WithCancelCause(context.Background())
	g.proxy = g.reverseProxy()
	if g.cfg.ca != nil {
		g.tunnels = newTunnels(g)
	}
	return g, nil
}

func (c *config) validate() error {
	if c.maxWait < 0 {
		return fmt.Errorf("%w: WithMaxWait(%v) is negative", ErrInvalidOption, c.maxWait)
	}
	if c.log == nil {
		return fmt.Errorf("%w: the Logger of WithLogger is nil", ErrInvalidOption)
	}
	for _, token := range c.tokens {
		if token == "" {
			return fmt.Errorf("%w: the token of WithToken is empty", ErrInvalidOption)
		}
		sum := sha256.Sum256([]byte(token))
		c.token = &sum
	}
	return nil
}

// Reload replaces the rules. Requests that have begun or wait are completed under the old rules. It returns the
// errors of httplimit.New for a rule that is wrong; then the old rules stay.
func (g *Gateway) Reload(rules []httplimit.Rule) error {
	hosts, err := newHosts(rules, g.cfg.allow)
	if err != nil {
		return err
	}
	if err := httplimit.CheckRules(rules); err != nil { // before they have another index
		return err
	}
	g.reload.Lock()
	defer g.reload.Unlock()
	if err := g.transport.SetRules(slices.Concat([]httplimit.Rule{hosts.witness()}, rules)...); err != nil {
		return err
	}
	g.hosts.Store(&hosts)
	return nil
}

// Shutdown ends the requests that wait for permits with 503 and Retry-After, rejects new ones in the same way, and
// waits until the requests in tunnels have ended. If ctx ends first, it closes the tunnels and returns the context's
// error. It does not shut down the server that the Gateway is a handler of; do that as well.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.stop(errStopping)
	if g.tunnels == nil {
		return nil
	}
	return g.tunnels.shutdown(ctx)
}

// ServeHTTP forwards one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rec := &recorder{ResponseWriter: w, http2: r.ProtoMajor == 2, http10: !r.ProtoAtLeast(1, 1)}
	defer rec.bound(stallTimeout) // what net/http writes afterwards
	to, no := g.route(r)
	defer func() {
		if g.record(r, to, rec, start); rec.body != nil {
			rec.body.end() // the response may be sent before the rest of the body is read
		}
	}()
	switch {
	case no != nil:
		no.write(rec)
	case r.Method == http.MethodConnect:
		g.connect(rec, r, to)
	default:
		g.forward(rec, r, to)
	}
}
