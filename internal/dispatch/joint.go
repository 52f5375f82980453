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

// A joint is a script that runs several calls of another script, so that they travel as one EVALSHA.
//
// KEYS and ARGV hold the keys and the arguments of the first call, then those of the second, and so on. The reply is a
// flat list. It begins with the time at which the first call began, in µs since the epoch. Each call follows with
//
//	n and n elements   if its reply is a list
//	-1 and the reply   if it is anything else
//	-2 and a text      if it is an error
//
// An error is a text because go-redis stops reading a list at some errors, which would lose the replies after it.
type joint struct {
	src  string
	sha  any
	keys int // of each call
}

// joints has the joint for calls with all arguments, and the one for calls without the optional ones. Each is made when
// it is first needed.
type joints struct{ all, fewer func() *joint }

func newJoints(s *Script) *joints {
	return &joints{
		all:   sync.OnceValue(func() *joint { return newJoint(s, s.Args) }),
		fewer: sync.OnceValue(func() *joint { return newJoint(s, s.Args-s.Optional) }),
	}
}

// jointText is the template of a joint. The script becomes the body of a function with one parameter for each key and
// argument; passing tables KEYS and ARGV instead takes a tenth more time. The calls share one TIME, so most of the
// numbers that they write are the same, and digits formats each once. An error ends only its own call. What that call
// wrote before stays, as after an error in any script. A server with a newer Lua, such as Dragonfly, may lock keys by
// rules of its own, so there a joint runs none of the calls and returns 0.
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

// newJoint returns the joint for calls of s with args arguments each, or nil if s cannot have one: see [Joint].
func newJoint(s *Script, args int) *joint {
	src := Joint(s.Src, s.Keys, s.Args, args)
	if src == "" {
		return nil
	}
	sum := sha1.Sum([]byte(src))
	return &joint{src: src, sha: hex.EncodeToString(sum[:]), keys: s.Keys}
}

// Joint returns the source of the joint of the script src, which takes keys keys and at most args arguments, for calls
// that pass the first sent of these. It returns "" if src uses KEYS or ARGV other than with a literal index, as no
// script of this module does.
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
