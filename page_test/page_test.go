// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// fill makes n limiters, of which some are limited, stuck or in a cool-down.
func fill(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	ctx := t.Context()
	kinds := []string{"orders:create", "orders:refund", "payments:capture", "sms:send", "users:login", "search:query", "mail:digest", "dingtalk:robot"}
	for from := 0; from < n; from += 1000 {
		p := rdb.Pipeline()
		for i := from; i < min(n, from+1000); i++ {
			name := fmt.Sprintf("%s:%05d", kinds[i%len(kinds)], i)
			p.HSet(ctx, name, "rate", 10*(1+i%7), "interval", []int{1000, 10_000, 60_000, 3_600_000}[i%4], "type", 0, "keepAliveTime", 0)
		}
		redistest.Must(p.Exec(ctx))(t)
	}
	c := clienttest.New(t, rdb, ratelimiter.WithClientID("pod-7f9c"))
	defer func() { _ = c.Close() }()
	set := func(name string, r ratelimiter.Rate, grants ...int64) *ratelimiter.RateLimiter {
		l := c.RateLimiter(name)
		require.NoError(t, l.SetRate(ctx, r))
		for _, g := range grants {
			require.NoError(t, l.Acquire(ctx, g))
		}
		return l
	}
	set("api:export", ratelimiter.Rate{Permits: 20, Interval: time.Hour}, 15, 5)
	set("api:import", ratelimiter.Rate{Permits: 50, Interval: time.Hour, KeepAlive: 24 * time.Hour}, 12, 7, 2)
	set("api:tenants", ratelimiter.Rate{Type: ratelimiter.PerClient, Permits: 30, Interval: time.Hour}, 4)
	l := set("api:webhook", ratelimiter.Rate{Permits: 100, Interval: time.Hour}, 40)
	require.NoError(t, l.CoolDown(ctx, time.Now().Add(30*time.Minute)))
	require.NoError(t, rdb.HSet(ctx, "billing:legacy", "rate", 5, "interval", 1000, "type", 0).Err())
	require.NoError(t, rdb.Set(ctx, "{billing:legacy}:value", 0, 0).Err())
}

// TestListInABrowser filters, sorts and pages 10,000 limiters, by mouse and by keyboard.
func TestListInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	fill(t, rdb, 10_000)
	require.NoError(t, rdb.HSet(t.Context(), "<img src=x onerror=document.title='pwned'>", "rate", 5, "interval", 1000, "type", 0).Err())
	b := open(t, serve(t, rdb), 1280, 800)
	b.visit("?sort=name")
	b.until(`!document.querySelector("[data-looking]") && document.querySelector("#count").innerText === "1–50 of 10006"`)
	require.Equal(t, 50, eval[int](b, `document.querySelectorAll("#live tbody tr").length`))
	require.Equal(t, "<img src=x onerror=document.title='pwned'>", eval[string](b, `document.querySelector("tbody th a").innerText`))
	require.NotEqual(t, "pwned", eval[string](b, `document.title`))
	b.until(`document.querySelector("tbody tr.broken") || [...document.querySelectorAll(".tabs a")].some((a) => a.innerText.startsWith("Stuck 1"))`)

	// By keyboard: the next page, a row, the filter.
	b.press("n")
	b.until(`document.querySelector("#count")?.innerText === "51–100 of 10006" && document.readyState === "complete"`) // before that it takes no keys
	b.press("b")
	b.until(`document.querySelector("#count")?.innerText === "1–50 of 10006" && document.readyState === "complete"`)
	b.press("jjj")
	b.until(`document.activeElement === document.querySelectorAll("tbody th a")[2]`)
	b.press("k")
	b.until(`document.activeElement === document.querySelectorAll("tbody th a")[1]`)
	b.shortcut("/")
	b.until(`document.activeElement.id === "q"`)
	b.press("ORDERS*0424" + kb.Enter)
	b.until(`document.querySelector("#count")?.innerText === "1–5 of 5" && document.readyState === "complete"`)
	require.Equal(t, "orders:create:00424", eval[string](b, `document.querySelector("tbody th a").innerText`))
	b.press("j" + kb.Enter)
	b.until(`document.querySelector("h1")?.innerText === "orders:create:00424" && document.readyState === "complete"`)
	b.press("u")
	b.until(`document.querySelector("#count") && document.readyState === "complete"`)

	// By mouse: a tab and a column.
	b.do(chromedp.Click(chromedp.CSS(`.tabs a[href*="only=limited"]`)))
	b.until(`document.querySelector("#count")?.innerText === "1–3 of 3"`)
	b.do(chromedp.Click(chromedp.CSS(`th a[href*="sort=name"]`)))
	b.until(`document.querySelector("th[aria-sort=ascending]")?.innerText.startsWith("Name") && document.querySelector("tbody th a").innerText === "api:export"`)
	b.visit("?only=limited")
	b.until(`document.querySelector("th[aria-sort=descending]")?.innerText.startsWith("Wait") && document.querySelector("tbody th a").innerText === "billing:legacy"`)

	// A limiter that is made and deleted while the list is open shows by itself.
	require.NoError(t, rdb.Del(t.Context(), "billing:legacy").Err())
	b.until(`document.querySelector("tr.gone")?.innerText.includes("billing:legacy")`)
}

// TestTimelineInABrowser watches the window of a limiter while Redisson and this package acquire, until all grants have
// aged out.
func TestTimelineInABrowser(t *testing.T) {
	chromium(t)
	s := redistest.Start(t)
	rdb := client(t, s)
	jvm := startJava(t, s.Addr())
	const name = "orders:create"
	require.Equal(t, "true", jvm.call("trySetRate", name, "OVERALL", "50", "8000"))
	b := open(t, serve(t, rdb), 1280, 900)
	b.visit(limiterURL(name))
	b.until(`document.querySelector("#left").innerText === "50"`)
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acquired := make(chan struct{})
	go func() {
		defer close(acquired)
		for ctx.Err() == nil {
			_, _ = c.RateLimiter(name).Allow(ctx, 1)
			select {
			case <-time.After(700 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	numbers := `document.querySelector("#sums").innerText.match(/: (\d+) by Go, (\d+) by Java/).slice(1).map(Number)`
	for i := range 4 {
		require.Equal(t, "true", jvm.call("tryAcquire", name, "2"))
		b.until(numbers + fmt.Sprintf(`[1] > 0 && %s[0] > 0 && Number(document.body.dataset.live) > %d`, numbers, i))
	}
	require.Positive(t, eval[int](b, `document.querySelectorAll("svg rect.java").length`))
	require.Positive(t, eval[int](b, `document.querySelectorAll("svg rect.go").length`))
	require.Positive(t, eval[int](b, `document.querySelectorAll(".members tbody tr").length`))
	x := `Math.min(...[...document.querySelectorAll("svg rect.java, svg rect.go")].map((r) => Number(r.getAttribute("x"))))`
	at := eval[float64](b, x)
	b.until(fmt.Sprintf("%s !== %v", x, at)) // the bars move

	// Space holds the picture.
	b.press(" ")
	b.until(`document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
	shown := eval[string](b, `document.body.dataset.live`)
	require.Equal(t, "true", jvm.call("tryAcquire", name, "1"))
	b.press(" ")
	b.until(fmt.Sprintf(`document.body.dataset.live !== "%s"`, shown))

	cancel()
	<-acquired
	b.until(numbers + `.join() === "0,0" && document.querySelector("#left").innerText === "50"`)
}

// TestRedisDiesInABrowser checks that open pages say so when Redis dies, and go on by themselves when it is back.
func TestRedisDiesInABrowser(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := client(t, s)
	fill(t, rdb, 60)
	base := serve(t, rdb)
	list, one := open(t, base, 1280, 800), open(t, base, 1280, 800)
	list.visit("")
	one.visit(limiterURL("api:import"))
	one.until(`document.querySelector("#left").innerText === "29"`)
	list.until(`document.querySelectorAll("#live tbody tr").length === 50`)
	s.Kill()
	for _, b := range []*browser{list, one} {
		b.until(`!document.querySelector("#banner").hidden && document.querySelector("#banner").innerText.startsWith("Redis cannot be read since ")`)
		b.until(`document.body.classList.contains("stale")`)
	}
	require.Equal(t, "29", eval[string](one, `document.querySelector("#left").innerText`), "what was known stays")
	require.Equal(t, 50, eval[int](list, `document.querySelectorAll("#live tbody tr").length`))
	one.do(chromedp.Reload())
	one.until(`document.querySelector("#live")?.innerText.includes("Nothing is known of this limiter")`)
	s.Restart()
	for _, b := range []*browser{list, one} {
		b.until(`document.querySelector("#banner").hidden && !document.body.classList.contains("stale")`)
	}
	one.until(`document.querySelector("#left")?.innerText === "29"`)
}

// TestWritesInABrowser checks that a page without the option has no forms, and that with it a change needs the token, is
// shown before and after, and is not made by the page of another site.
func TestWritesInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	fill(t, rdb, 10)
	b := open(t, serve(t, rdb), 1280, 900)
	b.visit(limiterURL("api:export"))
	require.Equal(t, 0, eval[int](b, `document.querySelectorAll("form").length`))

	base := serve(t, rdb, ratelimiterpage.WithWrites(writeToken), ratelimiterpage.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	b.base = base
	release := func(token string) {
		b.visit(limiterURL("api:export"))
		for field, text := range map[string]string{"permits": "5", "token": token} {
			eval[bool](b, fmt.Sprintf(`(() => {
				window.form = document.querySelector("input[value=release]").form;
				form.elements[%q].focus();
				return true;
			})()`, field))
			b.press(text)
		}
		b.press(kb.Enter)
	}
	release(writeToken + "x")
	b.until(`document.querySelector("#main").innerText.includes("The token is missing or wrong.")`)
	require.Equal(t, "0", rdb.Get(t.Context(), "{api:export}:value").Val())
	release(writeToken)
	b.until(`document.querySelector(".done")?.innerText.includes("5 of 20 left")`)
	require.Equal(t, "5", rdb.Get(t.Context(), "{api:export}:value").Val())

	// The page of another site, which knows even the token.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<body id="main"><form method="post" action="%schange?name=api:export"><input name="action" value="heal"><input name="token" value="%s"></form>`, base, writeToken)
	}))
	defer evil.Close()
	b.base = strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	b.visit("/")
	eval[bool](b, `document.forms[0].submit() === undefined`)
	b.until(`document.querySelector("main")?.innerText.includes("The change came from the page of another site.")`)
}

// TestFindingsInABrowser watches a list that is empty at first: a limiter that is made shows by itself, and so does what is
// broken, with the number at the link to the doctor. Its command is copied with the Redis that it is for.
func TestFindingsInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	b := open(t, serve(t, rdb), 1280, 900)
	b.visit("")
	b.until(`document.querySelector("#live").innerText.includes("There is no limiter here.")`)
	require.True(t, eval[bool](b, `document.querySelector("#found").hidden`))
	ctx := t.Context()
	require.NoError(t, rdb.HSet(ctx, "billing:legacy", "rate", 5, "interval", 60000, "type", 0).Err())
	require.NoError(t, rdb.Set(ctx, "{billing:legacy}:value", 0, 0).Err())
	b.until(`document.querySelector("tr.broken")?.innerText.includes("billing:legacy")`)
	b.until(`!document.querySelector("#found").hidden && Number(document.querySelector("#found").innerText) > 0`)
	b.until(`document.querySelector("tr.broken .tag.bad")`)
	require.True(t, eval[bool](b, `document.querySelector("#found").closest("a").innerText.startsWith("Doctor")`))

	// Copied.
	b.visit("doctor")
	b.until(`document.querySelector(".fix")`)
	command := "rrl heal billing:legacy --redis redis://" + s.Addr() + "/0 --user default --write"
	b.until(fmt.Sprintf(`[...document.querySelectorAll(".fix")].some((e) => e.innerText === %q)`, command))
	eval[bool](b, `(() => {
		window.copied = [];
		const plain = navigator.clipboard.writeText;
		navigator.clipboard.writeText = (text) => { copied.push(text); return plain.call(navigator.clipboard, text); };
		return true;
	})()`)
	eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll(".fix")].find((e) => e.innerText === %q).nextElementSibling.click() === undefined`, command))
	b.until(`[...document.querySelectorAll(".copy")].some((e) => e.innerText === "Copied")`)
	require.Equal(t, command, eval[string](b, `copied.join()`))

	// Bars differ by more than their hue.
	demo(t, rdb, "orders:create")
	b.visit(limiterURL("orders:create"))
	b.until(`document.querySelectorAll("svg rect.java").length > 5`)
	require.Equal(t, `"url(#of-go)","url(#of-java)"`, eval[string](b, `["go", "java"].map((c) => JSON.stringify(document.querySelector("svg rect." + c).getAttribute("fill"))).join()`))
	require.Regexp(t, `^Java: \d+$`, eval[string](b, `document.querySelector("svg rect.java title").textContent`))
}

// TestTenTabsInABrowser opens more tabs than a browser has connections for a server. Each of them loads and moves.
func TestTenTabsInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	b := open(t, serve(t, rdb), 1280, 900)
	tabs := []*browser{b}
	for range 9 {
		tabs = append(tabs, b.tab())
	}
	for i, tab := range tabs {
		name := fmt.Sprint("orders:", i)
		require.NoError(t, rdb.HSet(t.Context(), name, "rate", 50, "interval", 3_600_000, "type", 0).Err())
		tab.visit(limiterURL(name))
		tab.until(`document.querySelector("#left").innerText === "50"`)
	}
	for i, tab := range tabs {
		require.NoError(t, rdb.HSet(t.Context(), fmt.Sprint("orders:", i), "rate", 70).Err())
		tab.until(`document.querySelector("#left").innerText === "70"`)
	}
}

// TestAHiddenTabInABrowser checks that a page which nobody sees asks for nothing, and is up to date when it is seen again.
func TestAHiddenTabInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 50, "interval", 3_600_000, "type", 0).Err())
	b := open(t, serve(t, rdb), 1280, 900)
	hide := func(hidden bool) {
		eval[bool](b, fmt.Sprintf(`(() => {
			Object.defineProperty(document, "hidden", { value: %v, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"));
			return true;
		})()`, hidden))
	}
	const asked = `performance.getEntriesByType("resource").filter((e) => /state|[?]sort/.test(e.name)).length`
	for target, moved := range map[string]string{limiterURL("orders"): `document.querySelector("#left").innerText`, "?sort=name": `document.querySelector("td.rate").innerText.split("/")[0]`} {
		require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 50).Err())
		b.visit(target)
		b.until(moved + ` === "50"`)
		b.until(asked + " > 2")
		hide(true)
		time.Sleep(time.Second) // for what is on its way
		before := eval[int](b, asked)
		require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 70).Err())
		time.Sleep(6 * time.Second) // more than either pause
		require.Equal(t, before, eval[int](b, asked))
		require.Equal(t, "50", eval[string](b, moved))
		hide(false)
		b.until(moved + ` === "70"`)
	}
}

// TestTheServerIsGoneInABrowser checks that a page says when its server is gone, not when one reply is lost, and goes on.
func TestTheServerIsGoneInABrowser(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	require.NoError(t, rdb.HSet(t.Context(), "orders", "rate", 50, "interval", 3_600_000, "type", 0).Err())
	b := open(t, serve(t, rdb), 1280, 900)
	b.visit(limiterURL("orders"))
	eval[bool](b, `(() => {
		window.said = [];
		window.lost = 0;
		new MutationObserver(() => said.push(document.querySelector("#banner").innerText)).observe(document.querySelector("#banner"), { attributes: true, childList: true });
		const plain = fetch;
		window.fetch = (...args) => (lost-- > 0 ? Promise.reject(new TypeError("Failed to fetch")) : plain(...args));
		return true;
	})()`)
	again := func(lost int) {
		shown := eval[string](b, fmt.Sprintf(`(window.lost = %d, document.body.dataset.live || "0")`, lost))
		b.until(fmt.Sprintf(`lost < 0 && Number(document.body.dataset.live) > 1 + %s`, shown))
	}
	again(1)
	require.Empty(t, eval[string](b, `said.join("")`))
	again(3)
	require.Contains(t, eval[string](b, `said.join("")`), "The server of this page does not reply.")
	require.True(t, eval[bool](b, `document.querySelector("#banner").hidden`))
}

// TestPictures looks at each kind of page once more, while callers wait, and takes the pictures of the documentation.
func TestPictures(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	fill(t, rdb, 10_000)
	demo(t, rdb, "orders:create")
	c := clienttest.New(t, rdb, ratelimiter.WithClientID("pod-4b1d"))
	defer func() { _ = c.Close() }()
	ctx, leave := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer leave()
	for i := range 24 {
		waiters.Go(func() { _ = c.RateLimiter("orders:create").Acquire(ctx, int64(5+i%4)) })
	}
	b := open(t, serve(t, rdb), 1180, 700)
	b.visit(limiterURL("orders:create"))
	b.until(`document.querySelectorAll("svg rect.java").length > 5 && Number(document.querySelector("#left").innerText) < 9`)
	b.visit("?q=api&sort=wait")
	b.until(`document.querySelector("#count").innerText.endsWith("of 4")`)
	b.visit("")
	b.until(`!document.querySelector("[data-looking]") && document.querySelectorAll("#live tbody tr").length === 50 && document.querySelector("tr.broken th .tag.bad")`)
	b.until(`!document.querySelector("#found").hidden && document.querySelectorAll("tbody th a")[1].innerText === "orders:create"`) // behind one whose calls fail
	b.picture("page-list.png", 1280, 620)
	b.visit(limiterURL("orders:create"))
	b.until(`document.querySelector("#past") && document.querySelectorAll("svg polyline").length > 0`) // of the hour, once there are two samples
	b.picture("page-limiter.png", 1180, 780)
	b.dark(true)
	b.picture("page-limiter-dark.png", 1180, 780)
	b.visit("doctor")
	b.until(`document.querySelector("#verdict")`)
	b.picture("page-doctor-dark.png", 1180, 620)
	b.dark(false)
	b.visit("?lang=zh")
	b.until(`document.querySelectorAll("#live tbody tr").length === 50`)
	b.picture("page-list-zh-360px.png", 360, 700)
}

// demo makes a limiter whose window has grants of Java, in the layout of Redisson 3.21 and later, and of Go.
func demo(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	ctx := t.Context()
	const rate, interval = 200, 600_000
	now := rdb.Time(ctx).Val().UnixMilli()
	left := rate
	var members []redis.Z
	for i := range 46 {
		at, n := now-int64(i*12_000+(i*i*997)%9000), byte(1+(i*7)%5)
		id := fmt.Sprintf("%016d", i*7919)
		if i%3 != 0 { // ours repeats the permits in bytes 4 to 7
			id = id[:3] + string([]byte{n, 0, 0, 0}) + id[7:]
		}
		members = append(members, redis.Z{Score: float64(at), Member: "\x10" + id + string([]byte{n, 0, 0, 0})})
		left -= int(n)
	}
	require.NoError(t, rdb.HSet(ctx, name, "rate", rate, "interval", interval, "type", 0, "keepAliveTime", 0).Err())
	require.NoError(t, rdb.Set(ctx, "{"+name+"}:value", left, 0).Err())
	require.NoError(t, rdb.ZAdd(ctx, "{"+name+"}:permits", members...).Err())
}
