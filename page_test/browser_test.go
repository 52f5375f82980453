// SPDX-License-Identifier: Apache-2.0

// Package page_test looks at the page of package ratelimiterpage with a real browser.
package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdproto "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	cdp "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// hangs is how long a condition may take to become true. Only a hang reaches it.
const hangs = 2 * time.Minute

// chromium returns the path of the browser, and skips the test if there is none.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("there is no chromium")
	}
	t.Skip("there is no chromium")
	return ""
}

// A browser is one tab, with what went wrong in it.
type browser struct {
	*testing.T
	ctx  context.Context
	base string // of the page

	mu       sync.Mutex
	problems []string
}

// A step returns nothing.
type step = chromedp.Action[chromedp.Void]

// open starts a browser that is closed when the test ends. The test fails if a page logs an error, throws, or tries what its
// content security policy forbids.
func open(t *testing.T, base string, width, height int) *browser {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height),
		chromedp.Flag("lang", "en-US"), chromedp.UserDataDir(t.TempDir()))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, closeTab := chromedp.NewContext(alloc)
	b := &browser{T: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(ctx, hangs)
		_ = chromedp.Cancel(end)
		cancel()
		closeTab()
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.problems, "what went wrong in the browser")
	})
	b.start()
	b.do(b.size(width, height))
	return b
}

// tab opens one more tab of the same browser.
func (b *browser) tab() *browser {
	b.Helper()
	ctx, closeTab := chromedp.NewContext(b.ctx)
	tab := &browser{T: b.T, ctx: ctx, base: b.base}
	b.Cleanup(func() {
		closeTab()
		tab.mu.Lock()
		defer tab.mu.Unlock()
		require.Empty(tab, tab.problems, "what went wrong in the tab")
	})
	tab.start()
	return tab
}

// start begins the tab, and listens to what goes wrong in it.
func (b *browser) start() {
	b.Helper()
	require.NoError(b, chromedp.Do(b.ctx)) // starts it, without a timeout, which would end it
	require.NoError(b, chromedp.Listen(b.ctx, func(ev any) {
		text := ""
		switch ev := ev.(type) {
		case *cdp.EventExceptionThrown:
			text = ev.ExceptionDetails.Text
			if e := ev.ExceptionDetails.Exception; e != nil {
				text += ": " + e.Description
			}
		case *log.EventEntryAdded:
			// A page that is away, as a test wants it, is logged by the network.
			if ev.Entry.Level == log.EntryLevelError && ev.Entry.Source != log.EntrySourceNetwork {
				text = ev.Entry.Text
			}
		}
		if text != "" {
			b.mu.Lock()
			b.problems = append(b.problems, text)
			b.mu.Unlock()
		}
	}))
	redistest.Must(chromedp.Call(b.ctx, log.Enable, cdproto.Empty{}))(b)
}

func (b *browser) size(width, height int) step {
	return chromedp.EmulateViewport(int64(width), int64(height))
}

func (b *browser) do(actions ...step) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

func (b *browser) visit(target string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base+target), chromedp.WaitReady(chromedp.CSS("#main")))
}

// eval returns what an expression of JavaScript is.
func eval[T any](b *browser, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return v
}

// until waits for an expression to be true. Pages that are being loaded count as false.
func (b *browser) until(expression string) {
	b.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, hangs)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			require.Fail(b, "it never came true", "%s (%v)\n%s", expression, err, eval[string](b, "location.href + document.body.innerText"))
		}
	}
}

func (b *browser) press(keys string) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// shortcut presses a key as a keyboard does, with which a page that takes the key keeps its character out of a field. press
// sends the character whatever the page does.
func (b *browser) shortcut(key string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		params := input.DispatchKeyEventParams{Type: typ, Key: key}
		if typ == input.DispatchKeyEventTypeKeyDown {
			params.Text = key
		}
		redistest.Must(chromedp.Call(ctx, input.DispatchKeyEvent, params))(b)
	}
}

// dark makes the browser prefer dark pages, or light ones.
func (b *browser) dark(on bool) {
	b.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(b, err)
}

// picture writes what the browser shows into docs, if RATELIMITER_PAGE_SCREENSHOTS is "write".
func (b *browser) picture(name string, width, height int) {
	b.Helper()
	b.do(b.size(width, height))
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	png := redistest.Must(chromedp.Run(ctx, chromedp.CaptureScreenshot()))(b)
	require.NotEmpty(b, png)
	require.Less(b, len(png), 150<<10, "%s is too large", name)
	if os.Getenv("RATELIMITER_PAGE_SCREENSHOTS") == "write" {
		require.NoError(b, os.WriteFile(filepath.Join("..", "docs", name), png, 0o644))
	}
}

// writeToken is the token of changes.
var writeToken = strings.Repeat("write", 4)

// serve serves the page of a Redis below a prefix, and returns its address.
func serve(t *testing.T, rdb *redis.Client, opts ...ratelimiterpage.Option) string {
	t.Helper()
	h, err := ratelimiterpage.New(rdb, append([]ratelimiterpage.Option{ratelimiterpage.WithTitle("orders-redis")}, opts...)...)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/limiters/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/ops/limiters/"
}

// client returns a client of a server that gives up soon, as that of rrl does.
func client(t *testing.T, s *redistest.Server) *redis.Client {
	return s.Client(t, func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = 3*time.Second, 5*time.Second, 1, 1, true
	})
}

func limiterURL(name string) string { return "limiter?name=" + url.QueryEscape(name) }
