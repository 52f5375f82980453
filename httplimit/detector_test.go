// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"testing"
	"time"

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
