// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
