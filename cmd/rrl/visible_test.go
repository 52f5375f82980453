// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/stretchr/testify/require"
)

// hostile holds sequences that a terminal would obey, in both of their forms, characters that end a line or turn the
// text around, and a byte that is not text. hostileVisible is how it has to look.
const (
	hostile        = "a\x1b[2J\u009b31m\x07\r\n\u202eb\x7f\xff"
	hostileVisible = `a\x1b[2J\u009b31m\a\r\n\u202eb\x7f\xff`
)

// requireVisible checks that out has only printable characters and ends of lines.
func requireVisible(t *testing.T, out string) {
	t.Helper()
	at := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) })
	require.Negative(t, at, "%q", out)
}

func TestVisible(t *testing.T) {
	require.Equal(t, hostileVisible, visible(hostile))
	for _, text := range []string{"", "orders", "42", `\`, "限流器 ▁█ …", "\ufffd"} {
		require.Equal(t, text, visible(text))
	}
	require.Equal(t, `cut off \x1b[2J`, oneLine(errors.New("cut\n off\t\x1b[2J ")))
}

func TestEncodeJSON(t *testing.T) {
	var out bytes.Buffer
	in := map[string]string{"text": hostile + "\U000e0001<限>"}
	require.NoError(t, term.EncodeJSON(&out, in))
	requireVisible(t, out.String())
	var back map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, strings.ToValidUTF8(in["text"], "\ufffd"), back["text"])
	require.Error(t, term.EncodeJSON(&out, func() {}))
}
