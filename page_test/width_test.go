// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// widths are of a small telephone, a telephone, a window of half a screen, a tablet, and the two ends between which the list
// was once cut off: 641 and 1069.
var widths = []int{320, 360, 641, 800, 1069, 2560}

// look has what the tests of widths measure. Each returns what is wrong.
const look = `(() => {
	const shown = (e) => e.getClientRects().length && !e.closest(".hidden, .skip, head") && e.tagName !== "TITLE";
	const texts = () => [...document.querySelectorAll("body *")].filter((e) => shown(e) && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
	const name = (e) => e.outerHTML.slice(0, 100);
	const rgb = (text) => text.match(/[\d.]+/g).map(Number);
	const luminance = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const back = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return [255, 255, 255];
	};
	const lines = (e) => {
		const range = document.createRange();
		range.selectNodeContents(e);
		let n = 0, bottom = -Infinity;
		for (const r of [...range.getClientRects()].filter((r) => r.width).sort((a, b) => a.top - b.top)) {
			if (r.top >= bottom - 2) n++;
			bottom = Math.max(bottom, r.bottom);
		}
		return n;
	};
	window.look = {
		// cut is what the window does not show, or what is wider than its own box.
		cut: () => [
			...(document.documentElement.scrollWidth > innerWidth ? ["the document is " + document.documentElement.scrollWidth + " wide"] : []),
			...[...texts(), ...document.querySelectorAll("input, button")].filter(shown).filter((e) => {
				const r = e.getBoundingClientRect();
				return r.left < 0 || r.right > innerWidth + 1;
			}).map((e) => "cut: " + name(e)),
			...[...document.querySelectorAll("td, th, .scroll, dd, p, h1, code")].filter(shown).filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map((e) => "too wide: " + name(e)),
		],
		// folded is what is only seen by scrolling inside a box.
		folded: () => [...document.querySelectorAll("main *")].filter(shown).filter((e) => getComputedStyle(e).overflowY === "auto" && e.scrollHeight > e.clientHeight + 1).map(name),
		// broken are short names, and the words of buttons and links, in more than one line, and short words in more than two.
		broken: () => [
			...[...document.querySelectorAll(".limiters tbody th a")].filter((a) => a.textContent.length <= 20 && lines(a) > 1),
			...[...document.querySelectorAll("button, .button, nav a")].filter(shown).filter((e) => lines(e) > 1),
			...texts().filter((e) => e.textContent.trim().length <= 12 && lines(e) > 2),
		].map(name),
		// pale is text that cannot be told from what is behind it, by the measure of WCAG 2 for small text.
		pale: () => texts().filter((e) => {
			const style = getComputedStyle(e), [a, b] = [luminance(rgb(style.color)), luminance(back(e))].sort((a, b) => b - a);
			return !e.closest("svg, .gone, :disabled") && (a + 0.05) / (b + 0.05) < 4.5;
		}).map(name),
		// text is all that is written, with what is folded up.
		text: () => {
			document.querySelectorAll("details").forEach((d) => (d.open = true));
			return document.querySelector("main").innerText;
		},
	};
	return true;
})()`

// longNames makes limiters in each state whose names have 4,000 characters, and the same ones with short names. It returns the
// names, the short ones first.
func longNames(t *testing.T, rdb *redis.Client) (names [2][]string) {
	t.Helper()
	ctx := t.Context()
	c := clienttest.New(t, rdb)
	defer func() { _ = c.Close() }()
	for i, n := range []int{1, 400} {
		for _, part := range []string{"wrong-typ/", "malformed/", "tenant_42/", "cooldown_/", "remains__/", "member_??/", "订单限流/订单限流/"} {
			name := strings.Repeat(part, n)
			hash := map[string]any{"rate": 5, "interval": 3_600_000, "type": 0}
			value, permits := "{"+name+"}:value", "{"+name+"}:permits"
			switch part {
			case "wrong-typ/":
				require.NoError(t, rdb.Set(ctx, permits, 0, 0).Err())
			case "malformed/":
				hash["type"] = 7
			case "tenant_42/": // stuck
				require.NoError(t, rdb.Set(ctx, value, 0, 0).Err())
			case "remains__/":
				require.NoError(t, rdb.Set(ctx, value, 0, 0).Err())
				hash = nil
			case "member_??/":
				require.NoError(t, rdb.ZAdd(ctx, permits, redis.Z{Score: 1, Member: "x"}).Err())
			}
			if hash != nil {
				require.NoError(t, rdb.HSet(ctx, name, hash).Err())
			}
			if part == "cooldown_/" {
				l := c.RateLimiter(name)
				require.NoError(t, l.Acquire(ctx, 1))
				require.NoError(t, l.CoolDown(ctx, time.Now().Add(time.Hour)))
			}
			names[i] = append(names[i], name)
		}
	}
	return names
}

var (
	// sentence finds English: three words in a row. Outside of it are names, what is quoted, and commands.
	sentence   = regexp.MustCompile(`[A-Za-z']+ [a-z']+ [a-z']+`)
	noSentence = regexp.MustCompile(`"[^"]*"|(rrl|redis-cli) [^；，、\p{Han}]*`)
)

// see checks a page that is open at each width, light and dark: all of it is there, and can be read. It returns how high the page is.
func (b *browser) see(what string) (heights []int) {
	b.Helper()
	eval[bool](b, look)
	for _, width := range widths {
		b.do(b.size(width, 900))
		assert.Empty(b, eval[[]string](b, `look.cut()`), "%s at %d", what, width)
		assert.Empty(b, eval[[]string](b, `look.broken()`), "%s at %d", what, width)
		if !strings.Contains(what, "long") {
			assert.Empty(b, eval[[]string](b, `look.folded()`), "%s at %d", what, width)
		}
		for _, dark := range []bool{false, true} {
			b.dark(dark)
			assert.Empty(b, eval[[]string](b, `look.pale()`), "%s at %d, dark: %v", what, width, dark)
			b.keep(fmt.Sprintf("%s-%d-%v", what, width, dark))
		}
		heights = append(heights, eval[int](b, `document.documentElement.scrollHeight`))
	}
	return heights
}

// keep writes what the browser shows into the directory RATELIMITER_PAGE_LOOK, if there is one.
func (b *browser) keep(name string) {
	b.Helper()
	dir := os.Getenv("RATELIMITER_PAGE_LOOK")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, hangs)
	defer cancel()
	png := redistest.Must(chromedp.Run(ctx, chromedp.CaptureScreenshot()))(b)
	require.NoError(b, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// TestEachPageFitsEachWidth looks at the pages in both languages, light and dark, from the smallest telephone to the widest
// screen. A name of 4,000 characters makes no page much higher than a short one does, is whole in the heading, and is copied
// whole. The Chinese pages have no English sentence.
func TestEachPageFitsEachWidth(t *testing.T) {
	s := redistest.Start(t)
	rdb := client(t, s)
	fill(t, rdb, 60)
	ctx := t.Context()
	names := longNames(t, rdb)
	require.NoError(t, rdb.HSet(ctx, "largest", "rate", int64(1)<<53, "interval", int64(9e12), "type", 0, "minGap", 90_000, "keepAliveTime", int64(9e12)).Err())
	c := clienttest.New(t, rdb, ratelimiter.WithClientID(strings.Repeat("pod-", 1000)))
	defer func() { _ = c.Close() }()
	require.NoError(t, c.RateLimiter("api:tenants").Acquire(ctx, 1))
	b := open(t, serve(t, rdb, ratelimiterpage.WithWrites(writeToken)), 1280, 900)
	b.visit("doctor")
	b.until(`document.querySelector("#verdict")?.innerText.startsWith("Not healthy")`)
	for _, lang := range []string{"en", "zh"} {
		b.visit("?lang=" + lang)
		b.until(`!document.querySelector("[data-looking]") && document.querySelectorAll("tr.broken").length > 3`)
		for i, height := range b.see(lang + "-list") {
			require.Less(t, height, 5500, "fifty limiters at %d", widths[i])
		}
		for width := 320; width < 1500; width += 20 { // a column comes and goes at some
			b.do(b.size(width, 900))
			require.Empty(t, eval[[]string](b, `[...look.cut(), ...look.broken()]`), "the list at %d, in %s", width, lang)
		}
		for page, target := range map[string]string{"doctor": "doctor?", "import": limiterURL("api:import") + "&", "tenants": limiterURL("api:tenants") + "&clients=1&",
			"largest": limiterURL("largest") + "&", "message": "nothing?", "changed": "change?"} {
			b.visit(target + "lang=" + lang)
			b.see(lang + "-" + page)
			b.chinese(lang, names)
		}
		for i, long := range names[1] {
			b.visit(limiterURL(names[0][i]) + "&check=1&lang=" + lang)
			short := b.see(lang + "-short-" + names[0][i][:6])
			b.visit(limiterURL(long) + "&check=1&lang=" + lang)
			for k, height := range b.see(lang + "-long-" + names[0][i][:6]) {
				assert.Less(t, height, short[k]+1200, "%s at %d", names[0][i], widths[k])
			}
			require.Equal(t, long, eval[string](b, `document.querySelector("h1").textContent`))
			b.chinese(lang, names)
			why := map[string]string{"en": "no command is shown", "zh": "不显示命令"}[lang]
			require.Equal(t, 1, strings.Count(eval[string](b, `document.querySelector("#commands").innerText`), why), "it says so once")
			require.Equal(t, 0, eval[int](b, `document.querySelectorAll("#commands .copy").length`), "there is nothing to copy")
		}
	}
	eval[bool](b, `(() => {
		navigator.clipboard.writeText = async (text) => { window.copied = text; };
		document.querySelector("h1 + .copy").click();
		return true;
	})()`)
	b.until(`window.copied !== undefined`)
	require.Equal(t, names[1][len(names[1])-1], eval[string](b, `copied`))
}

// chinese checks that a Chinese page is Chinese.
func (b *browser) chinese(lang string, names [2][]string) {
	b.Helper()
	if lang != "zh" {
		return
	}
	text := eval[string](b, `look.text()`)
	for _, name := range names[1] {
		text = strings.ReplaceAll(text, name, "")
	}
	require.NotEmpty(b, text)
	for line := range strings.SplitSeq(noSentence.ReplaceAllString(text, ""), "\n") {
		assert.NotRegexp(b, sentence, line)
	}
}
