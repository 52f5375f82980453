// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A store is a miniredis whose clock stands still until it is set, with one Lua state for all scripts. It runs commands by
// calls of functions, without a connection. It belongs to one goroutine.
type store struct {
	mini  *miniredis.Miniredis
	peer  *server.Peer
	out   bytes.Buffer
	wr    *bufio.Writer
	rd    *bufio.Reader
	lua   *lua.LState
	calls int // of scripts, so far

	rename func(key string) string // changes the keys of scripts; may be nil
}

func newStore(rename func(string) string) (*store, error) {
	s := &store{mini: miniredis.NewMiniRedis(), rd: bufio.NewReader(nil), lua: lua.NewState(), rename: rename}
	s.wr = bufio.NewWriter(&s.out)
	s.peer = server.NewPeer(s.wr)
	s.mini.ClockTTL(true)
	conn, err := s.mini.Dial() // it starts the server
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	mod := s.lua.NewTable()
	mod.RawSetString("call", s.lua.NewFunction(s.luaCall))
	mod.RawSetString("pcall", s.lua.NewFunction(s.luaPcall))
	s.lua.SetGlobal("redis", mod)
	s.lua.SetGlobal("struct", structModule(s.lua))
	return s, nil
}

func (s *store) close() {
	s.lua.Close()
	s.mini.Close()
}

// do runs a command.
func (s *store) do(args ...string) (any, error) {
	s.mini.Server().Dispatch(s.peer, args)
	s.peer.Flush()
	s.rd.Reset(&s.out)
	return server.ParseReply(s.rd)
}

func (s *store) luaCall(l *lua.LState) int {
	v, err := s.do(luaArgs(l)...)
	if err != nil {
		l.Error(lua.LString(err.Error()), 1)
	}
	l.Push(toLua(l, v))
	return 1
}

func (s *store) luaPcall(l *lua.LState) int {
	v, err := s.do(luaArgs(l)...)
	if err != nil {
		t := l.NewTable()
		t.RawSetString("err", lua.LString(err.Error()))
		l.Push(t)
		return 1
	}
	l.Push(toLua(l, v))
	return 1
}

func luaArgs(l *lua.LState) []string {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = l.CheckString(i + 1)
	}
	return args
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case int:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case server.Simple:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, e := range v {
			t.Append(toLua(l, e))
		}
		return t
	}
	return lua.LFalse
}

func fromLua(v lua.LValue) (any, error) {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LBool:
		if bool(v) {
			return int64(1), nil
		}
	case *lua.LTable:
		if e, ok := v.RawGetString("err").(lua.LString); ok {
			return nil, errors.New(string(e))
		}
		list := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			e, err := fromLua(v.RawGetInt(i))
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	}
	return nil, nil
}

// compiled maps the text of a script to its *lua.FunctionProto.
var compiled sync.Map

// Eval runs a script.
func (s *store) Eval(text string, keys, args []string) (any, error) {
	s.calls++
	proto, ok := compiled.Load(text)
	if !ok {
		chunk, err := parse.Parse(strings.NewReader(text), "script")
		if err != nil {
			return nil, err
		}
		p, err := lua.Compile(chunk, "script")
		if err != nil {
			return nil, err
		}
		proto, _ = compiled.LoadOrStore(text, p)
	}
	for name, list := range map[string][]string{"KEYS": keys, "ARGV": args} {
		t := s.lua.CreateTable(len(list), 0)
		for _, e := range list {
			t.Append(lua.LString(e))
		}
		s.lua.SetGlobal(name, t)
	}
	s.lua.Push(s.lua.NewFunctionFromProto(proto.(*lua.FunctionProto)))
	if err := s.lua.PCall(0, 1, nil); err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	v := s.lua.Get(-1)
	s.lua.Pop(1)
	return fromLua(v)
}

// structModule returns the part of the module struct that Redisson uses.
func structModule(l *lua.LState) *lua.LTable {
	mod := l.NewTable()
	mod.RawSetString("pack", l.NewFunction(func(l *lua.LState) int {
		if f := l.CheckString(1); f != "Bc0I" {
			l.RaiseError("struct.pack of %q", f)
		}
		n := l.CheckInt64(4)
		l.Push(lua.LString(string([]byte{byte(l.CheckInt(2))}) + l.CheckString(3) + string([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})))
		return 1
	}))
	mod.RawSetString("unpack", l.NewFunction(func(l *lua.LState) int {
		m := l.CheckString(2)
		if f := l.CheckString(1); f != "Bc0I" || len(m) < 5 || len(m) < 5+int(m[0]) {
			l.RaiseError("struct.unpack of %q", f)
		}
		end := 1 + int(m[0])
		l.Push(lua.LString(m[1:end]))
		l.Push(lua.LNumber(permitsOf(m[:end+4])))
		return 2
	}))
	return mod
}

// permitsOf returns the permits of a member.
func permitsOf(m string) int64 {
	b := m[len(m)-4:]
	return int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24
}

// A key is a key of Redis with what it holds.
type key struct {
	name string
	ttl  int64             // in ms, 0 for none
	text string            // of a string
	hash map[string]string // of a hash
	set  []member          // of a sorted set, in its order
}

type member struct {
	score int64
	raw   string
}

// dump returns the keys of those names that exist.
func (s *store) dump(names []string) (keys []key) {
	for _, name := range names {
		k := key{name: name}
		switch s.mini.Type(name) {
		case "string":
			k.text, _ = s.mini.Get(name)
		case "hash":
			k.hash = map[string]string{}
			fields, _ := s.mini.HKeys(name)
			for _, f := range fields {
				k.hash[f] = s.mini.HGet(name, f)
			}
		case "zset":
			set, _ := s.mini.SortedSet(name)
			for m, score := range set {
				k.set = append(k.set, member{int64(score), m})
			}
			slices.SortFunc(k.set, func(a, b member) int {
				if a.score != b.score {
					return int(a.score - b.score)
				}
				return strings.Compare(a.raw, b.raw)
			})
		default:
			continue
		}
		k.ttl = s.mini.TTL(name).Milliseconds()
		keys = append(keys, k)
	}
	return keys
}

// restore makes the store hold those keys and nothing else, at that instant in ms.
func (s *store) restore(keys []key, now int64) {
	s.mini.FlushAll()
	s.setTime(now)
	for _, k := range keys {
		switch {
		case k.hash != nil:
			for f, v := range k.hash {
				s.mini.HSet(k.name, f, v)
			}
		case k.set != nil:
			for _, m := range k.set {
				_, _ = s.mini.ZAdd(k.name, float64(m.score), m.raw)
			}
		default:
			_ = s.mini.Set(k.name, k.text)
		}
		if k.ttl > 0 {
			s.mini.SetTTL(k.name, time.Duration(k.ttl)*time.Millisecond)
		}
	}
}

// setTime sets the clock, by which keys expire.
func (s *store) setTime(ms int64) {
	s.mini.SetTime(time.UnixMilli(ms))
	_ = s.mini.Exists("") // it lets keys expire
}

type storeKey struct{}

// texts maps the digests of scripts to their texts.
var texts sync.Map

// with returns a context in which a [client] asks s.
func with(s *store) context.Context { return context.WithValue(context.Background(), storeKey{}, s) }

// A client runs each command in the store of its context.
type client struct{ redis.UniversalClient }

// Process runs a command.
func (client) Process(ctx context.Context, cmd redis.Cmder) error {
	err := ctx.Value(storeKey{}).(*store).process(cmd)
	cmd.SetErr(err)
	return err
}

// process runs one command of a client.
func (s *store) process(cmd redis.Cmder) error {
	args := make([]string, len(cmd.Args()))
	for i, a := range cmd.Args() {
		switch a := a.(type) {
		case string:
			args[i] = a
		case []byte:
			args[i] = string(a)
		case int:
			args[i] = strconv.Itoa(a)
		default:
			args[i] = fmt.Sprint(a)
		}
	}
	switch args[0] {
	case "evalsha":
		n, _ := strconv.Atoi(args[2])
		if s.rename != nil {
			for i := range n {
				args[3+i] = s.rename(args[3+i])
			}
		}
		text, _ := texts.Load(args[1])
		v, err := s.Eval(text.(string), args[3:3+n], args[3+n:])
		if err == nil {
			redistest.Reply(cmd, v)
			err = cmd.Err()
		}
		return err
	case "scan":
		cmd.(dispatch.Once).Cmder.(*redis.ScanCmd).SetVal(s.mini.Keys(), 0)
		return nil
	}
	return fmt.Errorf("explore: no command %s", args[0])
}
