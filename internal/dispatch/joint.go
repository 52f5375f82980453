// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A joint is a script that makes several calls of another script, so that they take one EVALSHA.
//
// Its KEYS and ARGV are those of the calls, one call after another. Its reply is one flat list. It begins with the time at which
// Redis began, in µs since the epoch. What follows for each call tells how the call ended:
//
//	n, e1, ..., en   the call replied a list of n elements
//	-1, reply        it replied something else
//	-2, text         it failed with this error
//
// An error is sent as text, because go-redis does not read on behind some errors inside a list.
type joint struct {
	src  string
	sha  any
	keys int // of each call
}

// joints are the joints of calls with all arguments, and of calls without the optional ones. They are made when they
// are first needed.
type joints struct{ all, fewer func() *joint }

func newJoints(s *Script) *joints {
	return &joints{
		all:   sync.OnceValue(func() *joint { return newJoint(s, s.Args) }),
		fewer: sync.OnceValue(func() *joint { return newJoint(s, s.Args-s.Optional) }),
	}
}

// jointText is the text of a joint. A call is a function with a parameter for each key and argument, since two tables
// for each would cost a tenth of the time. All calls have the same TIME, so digits writes the same instants for most. An
// error is that of its call alone; what the call did before stays, as after an error of a script. A server with another
// Lua than that of Redis, such as Dragonfly, may lock keys in its own way; it runs none of the calls and replies 0.
const jointText = `if math.type then
  return 0
end
local redis, string, math, table, tonumber, type, pcall = redis, string, math, table, tonumber, type, pcall
local call, texts = redis.call, {}
local began = call('TIME')
local function digits(n)
  local text = texts[n]
  if not text then
    text = string.format('%d', n)
    texts[n] = text
  end
  return text
end
local function one(@parameters)
@body
end
local list, at, k, a = {}, 1, 0, 0
for _ = 1, #KEYS / @keys do
  local ok, reply = pcall(one, @values)
  if ok and type(reply) == 'table' and not reply.err and not reply.ok then
    local n = #reply
    list[at + 1] = n
    for i = 1, n do
      list[at + 1 + i] = reply[i]
    end
    at = at + 1 + n
  else
    local err = not ok and reply or type(reply) == 'table' and reply.err
    list[at + 1], list[at + 2] = err and -2 or -1, err or reply or false
    at = at + 2
  end
  k, a = k + @keys, a + @args
end
list[1] = began[1] * 1000000 + began[2]
return list
`

var (
	parameter = regexp.MustCompile(`\b([KA])(?:EYS|RGV)\[(\d+)\]`)
	bare      = regexp.MustCompile(`\b(?:KEYS|ARGV)\b`)
	shared    = strings.NewReplacer("redis.call('TIME')", "began", "redis.call(", "call(", "string.format('%d', ", "digits(")
)

// newJoint returns the joint of calls of s with so many arguments, or nil if there is none.
func newJoint(s *Script, args int) *joint {
	src := Joint(s.Src, s.Keys, s.Args, args)
	if src == "" {
		return nil
	}
	sum := sha1.Sum([]byte(src))
	return &joint{src: src, sha: hex.EncodeToString(sum[:]), keys: s.Keys}
}

// Joint returns the text that makes several calls of a script, which takes that many keys and at most that many
// arguments; sent are the arguments of each call. It returns "" if the script names a key or an argument other than by
// a number, which no script of this module does.
func Joint(src string, keys, args, sent int) string {
	body := parameter.ReplaceAllString(shared.Replace(src), "$1$2")
	for line := range strings.Lines(body) {
		if code, _, _ := strings.Cut(line, "--"); bare.MatchString(code) {
			return ""
		}
	}
	var parameters, values []string
	for i := range keys {
		parameters = append(parameters, fmt.Sprint("K", i+1))
		values = append(values, fmt.Sprintf("KEYS[k + %d]", i+1))
	}
	for i := range args {
		parameters = append(parameters, fmt.Sprint("A", i+1))
		if i < sent {
			values = append(values, fmt.Sprintf("ARGV[a + %d]", i+1))
		}
	}
	return strings.NewReplacer("@parameters", strings.Join(parameters, ", "), "@values", strings.Join(values, ", "),
		"@keys", fmt.Sprint(keys), "@args", fmt.Sprint(sent), "@body", strings.TrimSuffix(body, "\n")).Replace(jointText)
}

// command returns the EVALSHA that makes the calls.
func (j *joint) command(calls []*call) []any {
	n := len(calls[0].evalsha) - 3
	cmd := append(make([]any, 0, 3+len(calls)*n), "evalsha", j.sha, len(calls)*j.keys)
	for _, c := range calls {
		cmd = append(cmd, c.evalsha[3:3+j.keys]...)
	}
	for _, c := range calls {
		cmd = append(cmd, c.evalsha[3+j.keys:]...)
	}
	return cmd
}

// eval returns the EVAL that is like a command of j.
func (j *joint) eval(evalsha []any) []any {
	return append([]any{"eval", j.src}, evalsha[2:]...)
}

var errJoint = errors.New("redis: the reply to calls that were made together does not say what became of each")

// part returns the outcome of a call from the list of what a reply says of it and of those behind it, and the list of
// those.
func part(list []any) (reply any, rest []any, err error) {
	if len(list) < 2 {
		return nil, nil, errJoint
	}
	n, ok := list[0].(int64)
	switch list = list[1:]; {
	case ok && 0 <= n && n <= int64(len(list)):
		return list[:n:n], list[n:], nil
	case ok && n == -1 && list[0] == nil:
		return nil, list[1:], redis.Nil
	case ok && n == -1:
		return list[0], list[1:], nil
	case ok && n == -2:
		return nil, list[1:], errorOf(list[0])
	}
	return nil, nil, errJoint
}

// A scriptError is the error of a call in a joint.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError tells go-redis that it is a reply.
func (scriptError) RedisError() {}

// errorOf returns the error that a call in a joint ended with. Redis itself writes ERR before a text that has no code.
func errorOf(raw any) error {
	text := fmt.Sprint(raw)
	if code, _, _ := strings.Cut(text, " "); strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		text = "ERR " + text
	}
	return scriptError(text)
}
