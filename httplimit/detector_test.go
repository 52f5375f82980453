// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/clienttest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// arrival is when the responses of these tests arrive.
var arrival = time.Date(2026, 9, 2, 16, 1, 2, 500_000_000, time.UTC)

// TestFirst: the order decides, and the detectors are those of the call.
func TestFirst(t *testing.T) {
	say := func(v Verdict) Detector { return DetectorFunc(func(*Response) Verdict { return v }) }
	no, a, b := say(Verdict{Reason: "ignored"}), say(Verdict{Throttled: true, Scope: "a"}), say(Verdict{Throttled: true, Scope: "b"})
	list := []Detector{no, a, b}
	first := First(list...)
	list[1] = b
	require.Equal(t, Scope("a"), first.Detect(&Response{}).Scope)
	require.Equal(t, Scope("b"), First(no, b, a).Detect(&Response{}).Scope)
	require.Equal(t, Verdict{}, First(no).Detect(&Response{}))
	require.Equal(t, Verdict{}, First().Detect(&Response{}))
}

// TestParseItems: beside it, TestFieldsThatRFC9651Rejects has most of what is no list.
func TestParseItems(t *testing.T) {
	item := func(name string, integers map[string]int64) fieldItem { return fieldItem{name, integers} }
	none := map[string]int64{}
	for _, c := range []struct {
		field string
		want  []fieldItem
		ok    bool
	}{
		{``, nil, true},
		{`  `, nil, true},
		{`"a"`, []fieldItem{item("a", none)}, true},
		{`tok/en;w=1`, []fieldItem{item("tok/en", map[string]int64{"w": 1})}, true},
		{`""`, []fieldItem{item("", none)}, true},
		{`"a\"\\b";r=0`, []fieldItem{item(`a"\b`, map[string]int64{"r": 0})}, true},
		{`"a" ,	"b"`, []fieldItem{item("a", none), item("b", none)}, true},
		{`"a";  r=1;t=-2`, []fieldItem{item("a", map[string]int64{"r": 1, "t": -2})}, true},
		{`"a";r=1;r=2`, []fieldItem{item("a", map[string]int64{"r": 2})}, true},
		{`"a";r=1;r`, []fieldItem{item("a", none)}, true},
		{`"a";b;c=?1;d=?0;e=tok;f=:YQ==:;g=@1;h=%"%c3%bc";i=1.25;j="5";*k=3`, []fieldItem{item("a", map[string]int64{"*k": 3})}, true},
		{`"a";r=999999999999999`, []fieldItem{item("a", map[string]int64{"r": 999999999999999})}, true},

		{`"a`, nil, false},
		{`"a\`, nil, false},
		{`"ü"`, nil, false},
		{`"a" "b"`, nil, false},
		{`"a";r=`, nil, false},
		{`"a";r=-`, nil, false},
		{`"a";r=?`, nil, false},
		{`"a";r=@x`, nil, false},
		{`"a";r=%a`, nil, false},
		{`"a";r=%"a`, nil, false},
		{`5;r=0`, nil, false},
		{`?1;r=0`, nil, false},
		{`:YQ==:;r=0`, nil, false},
		{`("a" "b");r=0`, nil, false},
		{`a=1`, nil, false},
	} {
		got, ok := parseItems([]string{c.field})
		require.Equal(t, c.ok, ok, "%s", c.field)
		require.Equal(t, c.want, got, "%s", c.field)
	}
}

// TestFieldsThatRFC9651Rejects: a field with a syntax error anywhere is ignored as a whole, also in a parameter that
// nobody reads. Each row stands beside one that differs in the error alone and is read.
func TestFieldsThatRFC9651Rejects(t *testing.T) {
	for _, c := range []struct{ ok, bad string }{
		// 4.2.9: a Date is an Integer.
		{`"a";r=0;x=@1659578233`, `"a";r=0;x=@1659578233.5`},
		{`"a";r=0;x=@-62135596800`, `"a";r=0;x=@-`},
		{`"a";r=0;x=@1`, `"a";r=0;x=@`},
		// 4.2.7: a Byte Sequence is base64.
		{`"a";r=0;x=:cHJldGVuZA==:`, `"a";r=0;x=:cHJl dGVuZA==:`},
		{`"a";r=0;x=:cHJldGVuZA:`, `"a";r=0;x=:cHJldGVu!A:`},
		{`"a";r=0;x=::`, `"a";r=0;x=:`},
		{`"a";r=0;x=:YQ==:`, `"a";r=0;x=:YQ=_:`},
		{`"a";r=0;x=:YWI=:`, `"a";r=0;x=:=YWI:`},
		{`"a";r=0;x=:YWJj:`, `"a";r=0;x=:Y:`},
		// 4.2.10: a Display String is ASCII with lower-case hex escapes of UTF-8.
		{`"a";r=0;x=%"f%c3%bc"`, `"a";r=0;x=%"f%C3%BC"`},
		{`"a";r=0;x=%"f%c3%bc"`, `"a";r=0;x=%"f%c3"`},
		{`"a";r=0;x=%"f%25"`, `"a";r=0;x=%"f%2"`},
		{`"a";r=0;x=%"f%25"`, `"a";r=0;x=%"f%"`},
		{`"a";r=0;x=%"f"`, "\"a\";r=0;x=%\"\u00fc\""},
		{`"a";r=0;x=%"f"`, "\"a\";r=0;x=%\"\x7f\""},
		{`"a";r=0;x=%""`, `"a";r=0;x=%"`},
		// 4.2.3.2, 4.2.3.3: parameters and keys.
		{`"a"; r=0`, "\"a\";\tr=0"},
		{`"a";r=0`, `"a" ;r=0`},
		{`"a";r=0`, `"a";r= 0`},
		{`"a";*r=0`, `"a";-r=0`},
		{`"a";r=0`, `"a";R=0`},
		{`"a";r`, `"a";`},
		// 4.2.1: lists.
		{"\"a\";r=0 ,\t\"b\"", `"a";r=0,`},
		{`"a", "b"`, `"a",, "b"`},
		{`  "a"  `, "\t\"a\""},
		// 4.2.4 to 4.2.8: numbers, Strings, Tokens, Booleans.
		{`"a";r=999999999999999`, `"a";r=1000000000000000`},
		{`"a";r=-0`, `"a";r=--0`},
		{`"a";r=1.125`, `"a";r=1.1255`},
		{`"a";r=123456789012.5`, `"a";r=1234567890123.5`},
		{`"a";r=1.5`, `"a";r=1.`},
		{`"a";r=1`, `"a";r=+1`},
		{`"a\\\"b"`, `"a\b"`},
		{`"a~"`, "\"a\x7f\""},
		{`*a/b:c`, `/a`},
		{`"a";x=?1`, `"a";x=?2`},
		{`"a";x=tok`, `"a";x=(tok)`},
	} {
		_, ok := parseItems([]string{c.ok})
		require.True(t, ok, "%s", c.ok)
		_, ok = parseItems([]string{c.bad})
		require.False(t, ok, "%s", strings.ToValidUTF8(c.bad, "?"))
	}
	v := HTTPDetector().Detect(&Response{Status: 503, Now: arrival, Header: map[string][]string{"Ratelimit": {`"a";r=0;t=30;x=@1.5`}}})
	require.Equal(t, Verdict{}, v)
}

// FuzzRateLimit: a RateLimit field that was built here is read as it was built. FuzzHeaders of package platform has all others.
func FuzzRateLimit(f *testing.F) {
	f.Add("default", int64(0), int64(30))
	f.Add(`a"b\c`, int64(7), int64(-1))
	f.Fuzz(func(t *testing.T, name string, r, wait int64) {
		const digits15 = 1_000_000_000_000_000
		r, wait = r%digits15, wait%digits15
		field := fmt.Sprintf(`%s;r=%d;t=%d`, quoteField(name), r, wait)
		items, ok := parseItems([]string{field, `"other"`})
		require.True(t, ok, "%s", field)
		require.Equal(t, []fieldItem{
			{asciiOf(name), map[string]int64{"r": r, "t": wait}}, {"other", map[string]int64{}},
		}, items)
		v := HTTPDetector().Detect(&Response{Status: 503, Now: arrival, Header: http.Header{"Ratelimit": {field}}})
		require.Equal(t, r == 0 && wait >= 0, v.Throttled, "%s", field)
		if v.Throttled {
			require.Equal(t, min(float64(wait), defaultMaxRetryAfter.Seconds()), v.Until.Sub(arrival).Seconds())
		}
	})
}

func asciiOf(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
}

func quoteField(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(asciiOf(s)) + `"`
}

// TestDetectorsThatCannotDetect checks that New names a detector that is nil or matches nothing, wherever it is, since a
// ban that nobody sees is worse than an error.
func TestDetectorsThatCannotDetect(t *testing.T) {
	client := clienttest.New(t, redis.NewClient(&redis.Options{}))
	for _, c := range []struct {
		d    Detector
		want string
	}{
		{nil, "detectors[0]: it is nil"},
		{Signature{}, "detectors[0].status: "},
		{&Signature{}, "detectors[0].status: "},
		{(*Signature)(nil), "detectors[0]: it is nil"},
		{DetectorFunc(nil), "detectors[0]: it is nil"},
		{First(HTTPDetector(), nil), "detectors[0][1]: it is nil"},
		{First(Signature{}), "detectors[0][0].status: "},
		{First(First(DetectorFunc(nil))), "detectors[0][0][0]: it is nil"},
	} {
		for _, o := range []Option{WithDetectors(c.d), WithRules(Rule{Detectors: []Detector{c.d}})} {
			_, err := New(client, o)
			require.ErrorIs(t, err, ratelimiter.ErrInvalidArgument)
			require.ErrorContains(t, err, c.want)
		}
	}
	_, err := New(client, WithDetectors(&Signature{Status: []int{429}}, First(HTTPDetector(), First())))
	require.NoError(t, err)
}
