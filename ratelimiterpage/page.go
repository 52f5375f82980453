// SPDX-License-Identifier: Apache-2.0

// Package ratelimiterpage serves a web page that shows the rate limiters of a live Redis, no matter whether Go services
// or Java services with Redisson use them.
//
//	page, err := ratelimiterpage.New(rdb, ratelimiterpage.WithToken("a long random text"))
//	if err != nil {
//		return err
//	}
//	defer page.Close()
//	mux.Handle("/limiters/", page)
//
// A list of all limiters can be filtered, sorted and paged. The page of a limiter shows its window as a moving
// timeline, its keys and members as Redis stores them, and what is wrong with it. It is in English or Chinese, loads
// nothing from other sites, and works without JavaScript, but then does not refresh.
//
// Without [WithToken] everybody who reaches the page can read it, so mount it behind the authentication of your service.
// Without [WithWrites] nobody can change a limiter. Command rrl page serves the page by itself.
package ratelimiterpage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// A Handler serves the page. It is safe for concurrent use. It reads Redis only while somebody views the page. The
// zero value is not usable, and responds to every request with 503; make one with [New].
type Handler struct {
	rdb    redis.UniversalClient
	survey *survey.Survey
	config
	to      doctor.Target // that commands are about
	origins *http.CrossOriginProtection

	ctx    context.Context // done when the Handler is closed
	cancel context.CancelFunc
	work   sync.WaitGroup // the goroutines that read Redis

	health  health
	index   index
	rows    rowCache
	feeds   feeds
	rounds  rounds
	changes changes
	guesses guesses
	history history
}

type config struct {
	title   string
	token   [sha256.Size]byte
	guarded bool // token is set
	writes  [sha256.Size]byte
	mayDo   bool           // writes is set
	url     *doctor.Target // of the Redis, for commands; nil for what the client says
	files   [3]string
	log     *slog.Logger
	err     error
}

// An Option configures a Handler.
type Option func(*config)

// WithTitle sets the name by which the page shows its Redis, such as the name of an environment. The default is its
// address.
func WithTitle(title string) Option { return func(c *config) { c.title = title } }

// MinToken is the minimum length of a token in bytes.
const MinToken = 16

// WithToken requires a token of at least [MinToken] bytes from every visitor: as the password of HTTP basic
// authentication with any user name, or as a bearer token. Without TLS anybody on the network path can read it. The
// response to a wrong token takes a second. By default no token is required.
func WithToken(token string) Option {
	return func(c *config) { c.token, c.guarded = c.hash("WithToken", token), true }
}

// WithWrites lets those who know a token of at least [MinToken] bytes change limiters. The page asks for the token
// with each change, and rejects a change that comes from the page of another site. By default the page changes
// nothing.
func WithWrites(token string) Option {
	return func(c *config) { c.writes, c.mayDo = c.hash("WithWrites", token), true }
}

// WithLogger sets the logger of changes of limiters, done or rejected, and of wrong tokens. Each record says who sent
// the request, as far as the request does. The default is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		if c.log = log; log == nil {
			c.err = cmp.Or(c.err, fmt.Errorf("%w: WithLogger: the logger is nil", ratelimiter.ErrInvalidArgument))
		}
	}
}

func (c *config) hash(option, token string) [sha256.Size]byte {
	if len(token) < MinToken {
		c.err = cmp.Or(c.err, fmt.Errorf("%w: the token of %s has %s; it has at least %d", ratelimiter.ErrInvalidArgument, option, permit.Counted(len(token), "byte"), MinToken))
	}
	return sha256.Sum256([]byte(token))
}

// New returns a Handler for the limiters of the Redis that rdb is connected to: a server, the master of a failover
// client, all masters of a cluster, or all shards of a ring. It sends nothing before somebody views the page. The
// error wraps ratelimiter.ErrInvalidArgument: rdb is nil, or an option cannot be used. The caller closes the Handler, and rdb after it.
func New(rdb redis.UniversalClient, opts ...Option) (*Handler, error) {
	if dispatch.IsNil(rdb) {
		return nil, fmt.Errorf("%w: the redis client is nil", ratelimiter.ErrInvalidArgument)
	}
	h := &Handler{rdb: rdb, survey: survey.New(rdb), config: config{log: slog.Default()}, origins: http.NewCrossOriginProtection()}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an Option is nil", ratelimiter.ErrInvalidArgument)
		}
		o(&h.config)
	}
	if h.err != nil {
		return nil, h.err
	}
	h.to = h.target()
	if h.title == "" {
		h.title = address(rdb)
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.feeds.of = map[feedKey]*feed{}
	return h, nil
}

// Close ends the searches of all keys, and waits for them. Later requests get status 503. Close does not
// close the Redis client, and always returns nil.
func (h *Handler) Close() error {
	if !h.made() {
		return nil
	}
	h.cancel()
	h.index.stop()
	h.work.Wait()
	return nil
}

// made reports whether New returned h.
func (h *Handler) made() bool { return h != nil && h.survey != nil }

// start runs f until the Handler is closed. It reports false if it is.
func (h *Handler) start(f func()) bool {
	if h.ctx.Err() != nil {
		return false
	}
	h.work.Go(f)
	return true
}

// address returns where a client connects to, without user and password.
func address(rdb redis.UniversalClient) string {
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }:
		addr := rdb.Options().Addr
		if addr == survey.Failover {
			addr = "the master"
		}
		return fmt.Sprintf("%s, database %d", addr, rdb.Options().DB)
	case interface{ Options() *redis.ClusterOptions }:
		return strings.Join(rdb.Options().Addrs, ", ")
	}
	return "Redis"
}

// policy allows what the page needs: its own style sheet, script, icon, state and forms.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page below any prefix that ends in a slash. It uses only what follows the last slash of the
// path, and all its links are relative.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin") // a limiter's name is in the address
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Language, Authorization, Cookie")
	if !h.made() {
		http.Error(w, "the page is not one that New returned", http.StatusServiceUnavailable)
		return
	}
	if h.guarded {
		token, given := tokenOf(r)
		if given && h.guesses.busy(w) {
			return
		}
		if !given || !same(h.token, token) {
			if given {
				h.wrong(r, "looking")
			}
			header.Set("WWW-Authenticate", `Basic realm="rate limiters", charset="UTF-8"`)
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
	}
	if h.ctx.Err() != nil {
		http.Error(w, "the page is closed", http.StatusServiceUnavailable)
		return
	}
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if last == "change" {
		h.serveChange(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "this only reads", http.StatusMethodNotAllowed)
		return
	}
	switch last {
	case "":
		h.serveList(w, r)
	case "limiter":
		h.serveLimiter(w, r)
	case "doctor":
		h.serveDoctor(w, r)
	case "state":
		h.serveState(w, r)
	case "page.css", "page.js", "icon.svg":
		serveAsset(w, r, last)
	default:
		v := h.view(r)
		v.Title = v.t("There is no such page")
		v.Message = v.t("There is no page of that name.")
		h.render(w, http.StatusNotFound, "message", v, v)
	}
}

// tokenOf returns the token to look that a request has. It reports false if it has none.
func tokenOf(r *http.Request) (string, bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// same compares a token with the hash of the right one, in a time that does not depend on either.
func same(want [sha256.Size]byte, token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// readLimit is how long a page waits for Redis.
const readLimit = 3 * time.Second

// A health knows since when Redis cannot be read, and why.
type health struct {
	mu    sync.Mutex
	since time.Time // the zero time while it can be read
	why   string
}

// note takes the outcome of a call to Redis.
func (s *health) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = time.Now()
		fallthrough
	default:
		s.why = survey.OneLine(err)
	}
}

// down returns since when Redis cannot be read, and why. It reports false if it can.
func (s *health) down() (since time.Time, why string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.why, !s.since.IsZero()
}

// doctorOf returns a doctor of the limiters that the page shows.
func (h *Handler) doctorOf() *doctor.Doctor {
	return &doctor.Doctor{Survey: h.survey, To: &h.to, MaxClients: mostClients, Parallel: 4}
}

// WithRedisURL sets the URL of Redis in the commands that the page offers to copy, in the form of rrl's option
// --redis. The page leaves out a password; it says in which environment variable the commands read it. The default is
// built from the options of the client. If these have no address, as those of a failover client, it has the address
// of the server that holds the limiter.
func WithRedisURL(raw string) Option {
	return func(c *config) {
		to, err := doctor.ParseTarget(raw)
		if err != nil {
			c.err = cmp.Or(c.err, fmt.Errorf("%w: WithRedisURL: %w", ratelimiter.ErrInvalidArgument, err))
			return
		}
		c.url = &to
	}
}

// WithTLSFiles sets the PEM files that the page's commands name: the CA certificates, the client's certificate, and
// its key. Each may be empty.
func WithTLSFiles(ca, cert, key string) Option {
	return func(c *config) { c.files = [3]string{ca, cert, key} }
}

// target returns the Redis that commands are about: at the URL of the page, if it has one, as the user of the client.
func (h *Handler) target() doctor.Target {
	to := doctor.TargetOf(h.rdb)
	if h.url != nil {
		of := *h.url
		of.User, of.Password = cmp.Or(to.User, of.User), to.Password || of.Password
		to = of
	}
	to.CA, to.Cert, to.Key = h.files[0], h.files[1], h.files[2]
	return to
}
