// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

const (
	changeLimit = 10 * time.Second
	formLimit   = 64 << 10 // bytes
	changesKept = 64
)

// changes keeps the last changes, so that the page to which the browser is sent afterwards can show them.
type changes struct {
	mu   sync.Mutex
	list []*changed // the oldest first
}

type changed struct {
	id, name, action string
	before, after    *survey.State
}

// A changeView is what the page shows of a change.
type changeView struct{ Action, Before, After string }

func (c *changes) add(x *changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list = append(c.list, x); len(c.list) > changesKept {
		c.list = c.list[1:]
	}
}

// view returns the change of that id, or nil if it is forgotten or is that of another limiter.
func (c *changes) view(v *pageView, id, name string) *changeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.list {
		if x.id == id && x.name == name {
			return &changeView{v.t(actions[x.action].title), v.summary(x.before), v.summary(x.after)}
		}
	}
	return nil
}

// summary returns a state in one line.
func (v *pageView) summary(st *survey.State) string {
	if st == nil {
		return v.t("could not be read")
	}
	l, text := view.Of(st), v.t("no limiter")
	switch {
	case st.Problem == nil:
		if text = fmt.Sprintf("%s %s", st.Rate.Type, survey.RateText(st.Rate)); l.Available != survey.Unknown {
			text += ", " + v.t("%[1]d of %[2]d left", l.Available, st.Rate.Permits)
		}
		if l.Row.CoolDown > 0 {
			text += ", " + v.t("cool-down for %s", survey.Brief(st.CoolDown().Sub(st.Time)))
		}
	case !l.Absent:
		text = v.t(survey.OneLine(st.Problem))
	}
	if st.HasValue {
		text += "; " + v.t("value %s", survey.VisibleName(st.Value))
	}
	return text + "; " + v.t("members: %s", v.number(st.Count))
}

// An action is a change that the page offers.
type action struct {
	title     string
	perClient bool // of a PER_CLIENT limiter it changes the permits of one client, which has to be named
	creates   bool // it makes a limiter that is not there, if the form says so
	// prepare reads the form, and returns what is to be done.
	prepare func(f url.Values) (func(ctx context.Context, l *ratelimiter.RateLimiter) error, error)
}

// A formError is an error in what somebody has typed.
type formError struct{ error }

var actions = map[string]action{
	"heal": {"Heal", true, false, func(url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Admin().Heal(ctx) }, nil
	}},
	"release": {"Release permits", true, false, func(f url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		n, err := wholeNumber(f, "permits")
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error { return l.Release(ctx, n) }, err
	}},
	"set-rate": {"Set the rate", false, true, func(f url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		n, err := wholeNumber(f, "permits")
		if err != nil {
			return nil, err
		}
		interval, err := duration(f, "interval")
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			r, err := l.Rate(ctx)
			if errors.Is(err, ratelimiter.ErrNotInitialized) || errors.Is(err, ratelimiter.ErrMalformed) {
				r, err = ratelimiter.Rate{}, nil
			}
			if err != nil {
				return err
			}
			r.Permits, r.Interval = n, interval
			if f.Get("forget") == "1" {
				return l.SetRate(ctx, r)
			}
			return l.SetRate(ctx, r, ratelimiter.KeepState())
		}, err
	}},
	"cool-down": {"Cool down", false, false, func(f url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		d, err := duration(f, "for")
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			return l.CoolDown(ctx, time.Now().Add(d))
		}, err
	}},
	"lift": {"Lift the cool-down", false, false, func(url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			lifted, err := l.Admin().LiftCoolDown(ctx)
			if err == nil && !lifted {
				err = formError{errors.New("there was no cool-down")}
			}
			return err
		}, nil
	}},
	"delete": {"Delete", false, false, func(f url.Values) (func(context.Context, *ratelimiter.RateLimiter) error, error) {
		return func(ctx context.Context, l *ratelimiter.RateLimiter) error {
			if f.Get("confirm") != survey.VisibleName(l.Name()) {
				return formError{errors.New("the name was not typed as it is shown; nothing was deleted")}
			}
			deleted, err := l.Admin().Delete(ctx)
			if err == nil && !deleted {
				err = formError{errors.New("there was nothing to delete")}
			}
			return err
		}, nil
	}},
}

func wholeNumber(f url.Values, field string) (int64, error) {
	text := strings.TrimSpace(f.Get(field))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, formError{fmt.Errorf("%q is no number of permits; it is a whole number from 1 on", text)}
	}
	return n, nil
}

func duration(f url.Values, field string) (time.Duration, error) {
	text := strings.TrimSpace(f.Get(field))
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, formError{fmt.Errorf("%q is no duration; it is written as in 500ms, 10s, 1m30s or 2h", text)}
	}
	return d, nil
}

// serveChange does what a form asks for, if the page may change anything, and shows the limiter before and after.
func (h *Handler) serveChange(w http.ResponseWriter, r *http.Request) {
	name, client := r.URL.Query().Get("name"), r.URL.Query().Get("client")
	v := h.view(r)
	reject := func(status int, text string, err error) {
		h.log.Warn("ratelimiterpage: a change was rejected", "limiter", name, "remote", r.RemoteAddr, "status", status, "error", err)
		v.Title, v.Message = v.t("Nothing was changed"), text
		if err != nil && text == "" {
			v.Message = v.t(survey.OneLine(err))
		}
		v.Home = v.limiterLink(name, client)
		if name == "" {
			v.Home = "./" + withQuery(v.query())
		}
		h.render(w, status, "message", v, v)
	}
	switch {
	case !h.mayDo:
		reject(http.StatusForbidden, v.t("This page only reads."), errors.New("the page only reads"))
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		reject(http.StatusMethodNotAllowed, v.t("A change is a POST."), fmt.Errorf("the method is %s", survey.Visible(r.Method)))
		return
	}
	if err := h.origins.Check(r); err != nil {
		reject(http.StatusForbidden, v.t("The change came from the page of another site."), err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, formLimit)
	if err := r.ParseForm(); err != nil {
		reject(http.StatusBadRequest, "", err)
		return
	}
	if h.guesses.busy(w) {
		return
	}
	if token := r.PostForm.Get("token"); !same(h.writes, token) {
		if token != "" {
			h.wrong(r, "changing")
		}
		reject(http.StatusForbidden, v.t("The token is missing or wrong."), errors.New("the token is missing or wrong"))
		return
	}
	a, ok := actions[r.PostForm.Get("action")]
	if !ok || name == "" {
		reject(http.StatusBadRequest, "", fmt.Errorf("there is no action %q, or no limiter is named", r.PostForm.Get("action")))
		return
	}
	x, err := h.change(r.Context(), a, name, client, r.PostForm)
	if err != nil {
		status := http.StatusBadGateway
		var form formError
		switch {
		case errors.As(err, &form), errors.Is(err, ratelimiter.ErrInvalidArgument), errors.Is(err, ratelimiter.ErrPermitsExceedRate):
			status = http.StatusBadRequest
		case errors.Is(err, ratelimiter.ErrNotInitialized), errors.Is(err, ratelimiter.ErrMalformed), errors.Is(err, survey.ErrForeign), errors.Is(err, survey.ErrWrongType):
			status = http.StatusConflict
		}
		reject(status, "", err)
		return
	}
	x.action = r.PostForm.Get("action")
	h.changes.add(x)
	h.rounds.stale()
	en := &pageView{Lang: "en"}
	h.log.Info("ratelimiterpage: a limiter was changed", "action", x.action, "limiter", name, "client", client, "remote", r.RemoteAddr,
		"before", en.summary(x.before), "after", en.summary(x.after))
	http.Redirect(w, r, relative(r)+"limiter"+withQuery(v.query("name", name, "client", client, "done", x.id)), http.StatusSeeOther)
}

// relative returns the path of the page's folder. http.Redirect would make a path from one that is relative, and with
// http.StripPrefix it would be the wrong one.
func relative(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path[:strings.LastIndexByte(path, '/')+1]
}

// change does it, between two readings.
func (h *Handler) change(ctx context.Context, a action, name, client string, form url.Values) (*changed, error) {
	do, err := a.prepare(form)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeLimit) // a browser that leaves does not break it off
	defer cancel()
	before, err := h.survey.Read(ctx, name, client)
	if err != nil {
		return nil, err
	}
	if a.perClient && client == "" && before.Problem == nil && before.Rate.Type == permit.PerClient {
		return nil, formError{errors.New("the clients of a PER_CLIENT limiter have permits of their own; open the page of one of them")}
	}
	var opts []ratelimiter.Option
	if client != "" {
		opts = append(opts, ratelimiter.WithClientID(client))
	}
	absent := before.Types == [3]string{"none", "none", "none"}
	if a.creates && absent && form.Get("create") != "1" {
		return nil, formError{errors.New("there is no limiter of this name, and none was to be made")}
	}
	both := form.Get("action") == "delete" || form.Get("action") == "set-rate" && (form.Get("forget") == "1" || before.Problem != nil)
	if err := h.survey.Writable(ctx, before, both); err != nil {
		return nil, err
	}
	c, err := ratelimiter.New(h.rdb, opts...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	err = do(ctx, c.RateLimiter(name))
	if client == "" { // what the change has written for a client that nobody is goes again
		if forgot := redisson.Forget(ctx, h.rdb, name, c.ID()); err == nil {
			err = forgot
		}
	}
	if err != nil {
		return nil, err
	}
	after, err := h.survey.Read(ctx, name, client)
	if err != nil {
		after = nil // it was done all the same
	}
	return &changed{id: rand.Text(), name: name, before: before, after: after}, nil
}
