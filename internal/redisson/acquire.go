// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
)

// A reading is what a reply to acquire says.
type reading struct {
	permit.Reply
	noTTL bool // the limiter had no TTL; false also if the call did not look
	other bool // a member has a layout that a reader of ours cannot read, or the other way round
}

// Acquire makes one attempt at b. It sets the type of b and, unless it has been set, what to check. An error on the
// way to Redis is a *[retry.Error]; any other error is what Redis replied. If requests were rejected and a look for
// lost permits is due, the reply is On, and b checks.
func (l *Limiter) Acquire(ctx context.Context, b *permit.Batch) (permit.Reply, error) {
	sent := time.Now()
	noTTL, gap := l.hints.prepare(b, sent)
	for changes := 0; ; {
		a, err := l.acquire(ctx, b, noTTL, gap)
		if err == nil {
			l.hints.learn(b, &a, sent)
			if a.other {
				l.otherLayout()
			}
			return a.Reply, nil
		}
		if again, err := l.hasOtherType("acquire", err, &b.Type, &changes); !again {
			return permit.Reply{}, err
		}
	}
}

// acquire sends b. If acquire.lua does not decide b, it says so and changes nothing, so acquire_rest may follow as
// part of the same attempt.
func (l *Limiter) acquire(ctx context.Context, b *permit.Batch, noTTL, gap bool) (reading, error) {
	if usual(b) && !gap {
		cmd, err := l.usualCommand(b, noTTL)
		if err != nil {
			return reading{}, err
		}
		raw, err := l.once(ctx, l.Scripts.Acquire, cmd, b.Requests(), b.Alone)
		if err != nil {
			return reading{}, err
		}
		if a, ok := l.readUsual(b, raw); ok {
			return a, nil
		}
		if r, n := short(raw); n != 1 || r[0] != statusUnusual {
			return l.readRest(b, l.Scripts.Acquire, dispatch.List(raw))
		}
	}
	cmd, err := l.acquireCommand(b)
	if err != nil {
		return reading{}, err
	}
	raw, err := l.once(ctx, l.Scripts.AcquireRest, cmd, b.Requests(), slow(b) || b.Replay || b.Alone)
	if err != nil {
		return reading{}, err
	}
	return l.readRest(b, l.Scripts.AcquireRest, raw)
}

// usual reports whether acquire decides b, as long as the limiter is in its usual state.
func usual(b *permit.Batch) bool {
	return len(b.Runs) == 1 && b.Runs[0].Permits*b.Runs[0].Count <= permit.Max && !b.Replay && b.Check == permit.Unchecked && !b.Healed &&
		!b.DryRun && b.Floor == 0 && b.At.IsZero() && b.Cursor.Members == 0 && !b.Allowance.On &&
		(b.Allowance.NoteFor == 0 || b.Type != permit.PerClient)
}

// usualCommand returns the command of acquire for b.
func (l *Limiter) usualCommand(b *permit.Batch, noTTL bool) ([]any, error) {
	s, now, looked := l.Scripts.Acquire, l.now(), 0
	if noTTL {
		looked = 1
	}
	r := b.Runs[0]
	var room struct { // one allocation for all
		cmd    [3 + 3 + 7]any
		member [21]byte
	}
	cmd := l.Keys.appendTo(s.BeginIn(room.cmd[:0]), b.Type)
	member := appendMember(room.member[:0], l.LongLength, b.ID.Run(0), uint32(r.Permits*r.Count))
	cmd = append(cmd, wires[b.Type], r.Permits, r.Count, member, looked)
	if b.Type == permit.PerClient || now != "" {
		cmd = append(cmd, now, l.KeyTTL.Milliseconds())
	}
	return s.Complete(cmd)
}

// slow reports whether b may keep Redis busy for much longer than most calls, because it reads or writes many
// members. Then it does not share a round trip.
func slow(b *permit.Batch) bool {
	return b.Check != permit.Unchecked || b.Cursor.Members > 0 || b.Allowance.Survey || len(b.Runs) > 8
}

// acquireCommand returns the command of acquire_rest for b.
func (l *Limiter) acquireCommand(b *permit.Batch) ([]any, error) {
	now := l.now()
	if !b.At.IsZero() {
		now = b.At.UnixMilli()
	}
	words := words(word{b.Replay, "replay"}, word{b.Check != permit.Unchecked, "check"}, word{b.Healed, "healed"}, word{b.InOrder, "order"},
		word{b.DryRun, "dry"}, word{b.DryRun && b.Renew, "renew"},
		word{b.At.IsZero() && l.SharedClock, "mark"}) // a call dated back would mark every score
	// If these are too many for one member, the script writes smaller ones.
	whole := uint32(min(b.Runs[0].Permits*b.Runs[0].Count, permit.Max))
	s, more := l.Scripts.AcquireRest, 0
	if b.Type == permit.PerClient || len(b.Runs) > 1 || b.Cursor.Members > 0 || now != "" || b.Allowance.On || b.Allowance.NoteFor > 0 || b.Floor > 0 {
		more = 7
	}
	cmd := l.Keys.appendTo(s.Begin(5+more), b.Type)
	cmd = append(cmd, wires[b.Type], b.Runs[0].Permits, b.Runs[0].Count, Member(l.LongLength, b.ID.Run(0), whole), words)
	if more > 0 {
		walk, allowance := "", ""
		if b.Cursor.Members > 0 {
			walk = fmt.Sprint(b.Cursor.Members, " ", b.Cursor.Permits)
		}
		switch {
		case b.Floor > 0:
			allowance = bystander
		case b.Allowance.On:
			allowance = l.allowance(b.Allowance)
		}
		cmd = append(cmd, now, furtherRuns(b.Runs[1:]), l.KeyTTL.Milliseconds(), walk, allowance, b.Floor, l.note(b))
	}
	return s.Complete(cmd)
}

// allowance returns an Allowance in the form of ARGV[10].
func (c *Conn) allowance(a permit.Allowance) string {
	survey := 0
	if a.Survey {
		survey = 1
	}
	return fmt.Sprint(a.Grace.Milliseconds(), " ", a.May, " ", c.tag, " ", survey, " ", a.Waiting)
}

// maxNotedID bounds the id of a client in a note.
const maxNotedID = 100

// note returns who waits in the form of ARGV[12]. The queue is that of this process and, of a lower class, of its floor.
func (l *Limiter) note(b *permit.Batch) string {
	a := b.Allowance
	if a.NoteFor <= 0 {
		return ""
	}
	queue, client := l.Process(), ""
	if b.Floor > 0 {
		queue += fmt.Sprintf(".%d", b.Floor)
	}
	if b.Type == permit.PerClient {
		id := strings.TrimPrefix(l.Keys.Value[permit.PerClient], l.Keys.Value[permit.Overall]+":")
		if id = url.QueryEscape(id); len(id) <= maxNotedID {
			client = id
		}
	}
	return fmt.Sprint(queue, " ", a.Waiting, " ", a.NoteFor.Milliseconds(), " ", client)
}

// bystander is the allowance of a call with a floor: it does not touch the tripwires of others, and sets none.
const bystander = "0 0 65536 0 0"

func furtherRuns(runs []permit.Run) string {
	if len(runs) == 0 {
		return ""
	}
	var b []byte
	for _, r := range runs {
		b = strconv.AppendInt(b, r.Permits, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, r.Count, 10)
		b = append(b, ' ')
	}
	return string(b)
}

// short returns the numbers of a reply of at most ten numbers, and how many there are. For any other reply n is 0.
func short(raw any) (r [10]int64, n int) {
	if x, ok := raw.(dispatch.Integers); ok && len(x.Val()) <= len(r) {
		return r, copy(r[:], x.Val())
	}
	list, _ := raw.([]any)
	if len(list) > len(r) {
		return r, 0
	}
	for i, v := range list {
		var ok bool
		if r[i], ok = v.(int64); !ok {
			return r, 0
		}
	}
	return r, len(list)
}

// readUsual parses the reply of acquire to b. It reports false if the reply says neither that requests were granted
// nor that they were rejected.
func (l *Limiter) readUsual(b *permit.Batch, raw any) (reading, bool) {
	r, n := short(raw)
	if r[0] != statusOK || n < 7 {
		return reading{}, false
	}
	other := n == 8 || n == 10 // then the last number says so
	granted, wait := b.Runs[0].Count, time.Duration(0)
	if n >= 9 {
		granted, wait = r[8], ms(r[7])
	}
	if granted < 0 || granted > b.Runs[0].Count || r[4] <= 0 || n >= 9 && wait <= 0 {
		return reading{}, false // such as a reply that was read half, if a hook of the redis client drops the error
	}
	return reading{permit.Reply{
		Granted:   append(b.Room[:0], granted),
		Wait:      wait,
		Available: r[1],
		Now:       time.UnixMilli(r[2]),
		Rate:      permit.Rate{Type: b.Type, Permits: r[3], Interval: ms(r[4]), KeepAlive: max(0, ms(r[5]))},
	}, r[6] == 0 && !l.ClientClock, other}, true
}

// readRest parses the reply of acquire_rest to b, or what s says instead.
func (l *Limiter) readRest(b *permit.Batch, s *Script, raw any) (reading, error) {
	f := readerOf(raw)
	if f.number() != statusOK || s == l.Scripts.Acquire {
		return l.readUnusual(b, s, raw)
	}
	a := reading{Reply: permit.Reply{Now: time.UnixMilli(f.number()), Rate: permit.Rate{Type: b.Type}},
		noTTL: !l.ClientClock} // with the client's clock every call looks for a TTL, as Redisson does
	for !f.whole() {
		if !a.take(f.text(), f.number()) || f.bad {
			return reading{}, l.badReply(s, raw)
		}
	}
	if len(a.Granted) != len(b.Runs) || a.Rate.Interval <= 0 {
		return reading{}, l.badReply(s, raw)
	}
	for i, n := range a.Granted {
		if n < -1 || n > b.Runs[i].Count {
			return reading{}, l.badReply(s, raw)
		}
	}
	if b.Floor > 0 {
		a.Others = permit.Others{} // it gives way to all of them
	}
	return a, nil
}

// readUnusual parses a reply that is a status with at most one number.
func (l *Limiter) readUnusual(b *permit.Batch, s *Script, raw any) (reading, error) {
	r, err := l.numbers(s, raw)
	if err != nil {
		return reading{}, err
	}
	if r[0] == statusExceeds && len(r) == 2 {
		none := permit.Reply{Granted: make([]int64, len(b.Runs)), Rate: permit.Rate{Permits: r[1]}}
		for i := range none.Granted {
			none.Granted[i] = -1
		}
		return reading{Reply: none}, nil
	}
	return reading{}, cmp.Or(l.statusError(r), l.badReply(s, raw))
}

// take records the number that a reply gives under a name. It reports false if the name is unknown.
func (a *reading) take(name string, n int64) bool {
	switch name {
	case "granted":
		a.Granted = append(a.Granted, n)
	case "wait":
		a.Wait = ms(n)
	case "available":
		a.Available = n
	case "rate":
		a.Rate.Permits = n
	case "interval":
		a.Rate.Interval = ms(n)
	case "keepAlive":
		a.Rate.KeepAlive = max(0, ms(n))
	case "minGap":
		a.Rate.MinGap = ms(n)
	case "ttl":
		a.noTTL = false
	case "again":
		a.Next = permit.Next(n)
	case "walked":
		a.Cursor.Members = n
	case "walkedPermits":
		a.Cursor.Permits = n
	case "skew":
		a.Skew = ms(n)
	case "other":
		a.other = true
	case "soon":
		a.Others.Soon = ms(n)
	case "found":
		a.Others.WireFound = true
	case "stands":
		a.Others.WireLeft = true
	case "mine":
		a.Others.Mine = n
	case "theirs":
		a.Others.Java = n
	case "ours":
		a.Others.Kin = n
	case "blocked":
		a.Others.Blocked = n
	case "waiting":
		a.Others.Waiting = append(a.Others.Waiting, n)
	default:
		return false
	}
	return true
}
