// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
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

// TestViewsAreVisible checks each view of the demos with names, numbers, keys and errors that others chose.
func TestViewsAreVisible(t *testing.T) {
	text := hostile
	k := &redisKeys{TimeMS: 1000, Hash: hashKey{hostile, map[string]string{hostile: hostile}}, Value: valueKey{hostile, &text},
		Permits: permitsKey{hostile, 1, []member{{Permits: 1, GrantedMS: 1, Format: hostile}}}}
	e := exchange{Client: hostile, Num: hostile, Answer: answer{Error: hostile, Redis: k}, Err: errors.New(hostile)}
	for name, make := range map[string]func(out *bytes.Buffer) view{
		"plain": func(out *bytes.Buffer) view { return &plainView{out: out} },
		"term":  func(out *bytes.Buffer) view { return &termView{out: out} },
		"json":  func(out *bytes.Buffer) view { return &jsonView{out: out} },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			v := make(&out)
			v.begin(intro{Where: hostile, Limiter: hostile, Rate: ratelimiter.Rate{Permits: 1, Interval: time.Second}})
			v.asked(e)
			for _, status := range []int{0, http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
				e.Status = status
				v.answered(e)
			}
			v.end(summary{Err: errors.New(hostile)})
			requireVisible(t, ownSequences.Replace(out.String()))
			if name != "json" {
				require.Contains(t, out.String(), "hash    "+hostileVisible+"  "+hostileVisible+"="+hostileVisible)
				require.Contains(t, out.String(), "num="+hostileVisible)
			}
		})
	}
	event := dingEvent{Kind: "ban", Text: hostile}
	for name, make := range map[string]func(out *bytes.Buffer) dingView{
		"dingtalk plain": func(out *bytes.Buffer) dingView { return &dingPlain{out} },
		"dingtalk term":  func(out *bytes.Buffer) dingView { return &dingTerm{out: out} },
		"dingtalk json":  func(out *bytes.Buffer) dingView { return &dingJSON{jsonView{out: out}} },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			v := make(&out)
			v.begin(dingIntro{Where: hostile, URL: hostile})
			v.act(event)
			v.tell(event)
			v.close()
			requireVisible(t, ownSequences.Replace(out.String()))
		})
	}
}

// ownSequences removes the sequences that the views write themselves.
var ownSequences = strings.NewReplacer(wrapOff, "", wrapOn, "", cursorOff, "", cursorOn, "", clearBelow, "", "\x1b[2A", "", "\x1b[5A", "")
