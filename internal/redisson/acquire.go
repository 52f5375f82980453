// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/redis/go-redis/v9"
)

// Acquire makes one attempt at b. An error on the way to Redis is a *[retry.Error]. Any other error is what
// Redis replied; it is a *[permit.WrongTypeError] if b does not have the limiter's type.
//
// What acquire does not decide it replies to without a change, so that acquire_rest may follow as the same attempt.
func (l *Limiter) Acquire(ctx context.Context, b *permit.Batch) (permit.Reply, error) {
	if usual(b) {
		raw, err := l.try(ctx, b, l.Scripts.Acquire, l.usualCommand)
		if err != nil {
			return permit.Reply{}, err
		}
		if a, ok := l.readUsual(b, raw); ok {
			return a, nil
		}
		if r, n := short(raw); n != 1 || r[0] != statusUnusual {
			return l.readAcquire(b, l.Scripts.Acquire, raw)
		}
	}
	raw, err := l.try(ctx, b, l.Scripts.AcquireRest, l.acquireCommand)
	if err != nil {
		return permit.Reply{}, err
	}
	return l.readAcquire(b, l.Scripts.AcquireRest, raw)
}

// try makes one attempt at s for b.
func (l *Limiter) try(ctx context.Context, b *permit.Batch, s *Script, command func(*permit.Batch) ([]any, error)) (any, error) {
	cmd, err := command(b)
	if err != nil {
		return nil, err
	}
	return l.once(ctx, l.senderOf(slow(b) || b.Replay || b.Alone), s, cmd, b.Requests())
}

// usual reports whether b is what acquire decides, unless the limiter is in another state than usual.
func usual(b *permit.Batch) bool {
	return len(b.Runs) == 1 && b.Runs[0].Permits*b.Runs[0].Count <= permit.Max && !b.Replay && !b.Check && !b.Healed &&
		!b.DryRun && !b.Gap && b.Floor == 0 && b.At.IsZero() && b.Cursor.Members == 0 && !b.Allowance.On
}

// usualCommand returns the command of acquire for b.
func (l *Limiter) usualCommand(b *permit.Batch) ([]any, error) {
	s, now, more, noTTL := l.Scripts.Acquire, l.now(), 0, 0
	if b.Type == permit.PerClient || now != "" {
		more = 2
	}
	if b.NoTTL {
		noTTL = 1
	}
	r := b.Runs[0]
	cmd := l.Keys.appendTo(s.Begin(5+more), b.Type)
	cmd = append(cmd, wires[b.Type], r.Permits, r.Count, l.member(b.ID.Run(0), uint32(r.Permits*r.Count)), noTTL)
	if more > 0 {
		cmd = append(cmd, now, l.KeyTTL.Milliseconds())
	}
	return s.Complete(cmd)
}

// slow reports whether b may keep Redis busy for much longer than most calls do, so that it is to share no round
// trip: it reads many members, or writes some.
func slow(b *permit.Batch) bool {
	return b.Check || b.Cursor.Members > 0 || b.Allowance.Survey || len(b.Runs) > 8
}

// acquireCommand returns the command of acquire_rest for b.
func (l *Limiter) acquireCommand(b *permit.Batch) ([]any, error) {
	now := l.now()
	if !b.At.IsZero() {
		now = b.At.UnixMilli()
	}
	words := words(word{b.Replay, "replay"}, word{b.Check, "check"}, word{b.Healed, "healed"}, word{b.InOrder, "order"},
		word{b.DryRun, "dry"}, word{b.DryRun && b.Renew, "renew"},
		word{b.At.IsZero() && l.SharedClock, "mark"}) // a call dated back would mark every score
	// If these are too many for one member, the script writes smaller ones.
	whole := uint32(min(b.Runs[0].Permits*b.Runs[0].Count, permit.Max))
	s, more := l.Scripts.AcquireRest, 0
	if b.Type == permit.PerClient || len(b.Runs) > 1 || b.Cursor.Members > 0 || now != "" || b.Allowance.On || b.Floor > 0 {
		more = 6
	}
	cmd := l.Keys.appendTo(s.Begin(5+more), b.Type)
	cmd = append(cmd, wires[b.Type], b.Runs[0].Permits, b.Runs[0].Count, l.member(b.ID.Run(0), whole), words)
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
		cmd = append(cmd, now, furtherRuns(b.Runs[1:]), l.KeyTTL.Milliseconds(), walk, allowance, b.Floor)
	}
	return s.Complete(cmd)
}

// allowance returns an Allowance in the form of ARGV[10].
func (c *Conn) allowance(a permit.Allowance) string {
	survey := 0
	if a.Survey {
		survey = 1
	}
	return fmt.Sprint(a.Grace.Milliseconds(), " ", a.May, " ", c.tag, " ", survey)
}

// bystander is the allowance of a call with a floor: it leaves the tripwires of others as they are, and none of its own.
const bystander = "0 0 65536 0"

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

// short returns the numbers of a reply that consists of at most nine numbers, and how many there are; 0 if it does
// not.
func short(raw any) (r [9]int64, n int) {
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

// readUsual parses the reply of acquire to b. It reports false if that says neither that requests were granted nor that
// they were rejected.
func (l *Limiter) readUsual(b *permit.Batch, raw any) (permit.Reply, bool) {
	r, n := short(raw)
	if r[0] != statusOK || n != 7 && n != 9 {
		return permit.Reply{}, false
	}
	granted := b.Runs[0].Count
	if n == 9 {
		granted = r[8]
	}
	if granted < 0 || granted > b.Runs[0].Count {
		return permit.Reply{}, false
	}
	return permit.Reply{
		Granted:   []int64{granted},
		Wait:      ms(r[7]),
		Available: r[1],
		Now:       time.UnixMilli(r[2]),
		Rate:      permit.Rate{Type: b.Type, Permits: r[3], Interval: ms(r[4]), KeepAlive: max(0, ms(r[5]))},
		NoTTL:     r[6] == 0 && !l.ClientClock,
	}, true
}

// readAcquire parses the reply of acquire_rest to b, or what s says instead.
func (l *Limiter) readAcquire(b *permit.Batch, s *Script, raw any) (permit.Reply, error) {
	r, err := l.numbers(s, raw)
	if err != nil {
		return permit.Reply{}, err
	}
	if r[0] == statusExceeds && len(r) == 2 {
		none := permit.Reply{Granted: make([]int64, len(b.Runs)), Rate: permit.Rate{Permits: r[1]}}
		for i := range none.Granted {
			none.Granted[i] = -1
		}
		return none, nil
	}
	if err := l.statusError(r); err != nil {
		return permit.Reply{}, err
	}
	var o permit.Others
	shared := b.Allowance.On || b.Floor > 0
	if n := 13 + len(b.Runs); shared && len(r) >= n+7 {
		o = permit.Others{Soon: ms(r[n]), WireFound: r[n+1] == 1, WireLeft: r[n+2] == 1,
			Mine: r[n+3], Java: r[n+4], Kin: r[n+5], Blocked: r[n+6], Waiting: r[n+7:]}
		r = r[:n:n]
	} else if s == l.Scripts.Acquire || shared || len(r) != n {
		return permit.Reply{}, l.badReply(s, raw)
	}
	if b.Floor > 0 {
		o = permit.Others{} // it gives way to all of them
	}
	granted := r[1:2:2]
	if len(b.Runs) > 1 {
		granted = append(granted, r[14:]...)
	}
	for i, n := range granted {
		if n < -1 || n > b.Runs[i].Count {
			return permit.Reply{}, l.badReply(s, raw)
		}
	}
	return permit.Reply{
		Granted:   granted,
		Wait:      ms(r[2]),
		Available: r[3],
		Now:       time.UnixMilli(r[4]),
		Rate:      permit.Rate{Type: b.Type, Permits: r[5], Interval: ms(r[6]), KeepAlive: max(0, ms(r[7])), MinGap: ms(r[12])},
		Next:      permit.Next(r[8]),
		Cursor:    permit.Cursor{Members: r[9], Permits: r[10]},
		Skew:      ms(r[11]),
		NoTTL:     r[13] == 0 && !l.ClientClock, // with the client's clock every call looks for a TTL, as Redisson does
		Others:    o,
	}, nil
}

// Ping asks any node for a reply, once. An error is a *[retry.Error].
func (c *Conn) Ping(ctx context.Context) error {
	cmd := dispatch.OnceCmd{Cmd: redis.NewCmd(ctx, "ping")}
	_, err := dispatch.Leavable(ctx, func() (any, error) {
		_ = dispatch.Process(ctx, dispatch.Alone(c.sender), cmd)
		return cmd.Result()
	})
	if err != nil {
		return dispatch.Failure(err)
	}
	return nil
}

// Probe makes one attempt at a write that changes nothing: it would change the score of a member that does not exist.
// It is rejected wherever the first write of a script would be: by a server that is out of memory, by a replica, for
// want of replicas, and after a failed save. Its errors are like those of [Limiter.Acquire]. On a cluster it looks up the
// masters first, since the one that does not reply may have been replaced.
func (l *Limiter) Probe(ctx context.Context, typ permit.Type) error {
	dispatch.Refresh(ctx, l.sender)
	cmd := dispatch.OnceCmd{Cmd: redis.NewCmd(ctx, "zadd", l.Keys.Permits[typ], "XX", 0, "probe")}
	_, err := dispatch.Leavable(ctx, func() (any, error) {
		_ = dispatch.Process(ctx, l.sender, cmd)
		return cmd.Result()
	})
	if err != nil {
		return dispatch.ClassifyError(ctx, l.sender, err)
	}
	return nil
}

// Refund makes one attempt at giving back the permits of g that are not kept, or at taking those that are kept beyond g.
func (l *Limiter) Refund(ctx context.Context, typ permit.Type, g permit.Grant) error {
	var smaller []byte
	if g.Keep > 0 {
		smaller = l.member(g.ID, uint32(g.Keep))
	}
	cmd, err := l.Scripts.GiveBack.Command(l.Keys.Of(typ), wire(typ), l.member(g.ID, uint32(g.Permits)), smaller, g.Permits-g.Keep)
	if err != nil {
		return err
	}
	_, err = l.once(ctx, l.sender, l.Scripts.GiveBack, cmd, 1)
	return err
}

// refunded returns how many permits a call of give_back gave back.
func refunded(raw any, cmd []any) int64 {
	if r, ok := raw.([]any); !ok || len(r) != 2 || r[0] != int64(statusOK) || r[1] != int64(1) {
		return 0 // the grant has expired, or is no longer there
	}
	n, _ := cmd[len(cmd)-1].(int64)
	return max(n, 0)
}

// Reserve makes one attempt at a reservation. Its errors are like those of [Limiter.Acquire].
func (l *Limiter) Reserve(ctx context.Context, v permit.Reservation) (permit.Reserved, error) {
	ahead, fields := "", 4
	if v.Ahead {
		ahead, fields = hex.EncodeToString(v.ID[:]), 8
	}
	words := words(word{v.Whole, "whole"}, word{v.Unsure, "unsure"}, word{v.Stand, "stand"})
	s := l.Scripts.Reserve
	cmd, err := s.Command(append(l.Keys.Of(v.Type), l.Keys.Ahead(v.Type)), wire(v.Type), v.Want, l.member(v.ID, uint32(v.Held)),
		v.Held, words, l.now(), l.KeyTTL.Milliseconds(), ahead, v.Since)
	if err != nil {
		return permit.Reserved{}, err
	}
	raw, err := l.once(ctx, l.senderOf(v.Unsure), s, cmd, 1)
	if err != nil {
		return permit.Reserved{}, err
	}
	r, err := l.numbers(s, raw)
	if err != nil {
		return permit.Reserved{}, err
	}
	if r[0] == statusExceeds && len(r) == 2 {
		return permit.Reserved{}, permit.Exceeds(l.Name, v.Want, 0, r[1])
	}
	if err := l.statusError(r); err != nil {
		return permit.Reserved{}, err
	}
	if len(r) != fields || r[1] < 0 || r[1] > permit.Max {
		return permit.Reserved{}, l.badReply(s, raw)
	}
	a := permit.Reserved{Held: r[1], Rate: permit.Rate{Permits: r[2], Interval: ms(r[3])}}
	if v.Ahead {
		a.Lacking, a.Wait, a.Place, a.Since = r[4], ms(r[5]), r[6], r[7]
	}
	return a, nil
}

// Joint reports whether one script can decide all of the parts, each of whose limiters is a *[Limiter].
func (c *Conn) Joint(parts []permit.Part) bool {
	if len(parts) > JointParts {
		return false
	}
	tag := hashTag(parts[0].Limiter.(*Limiter).Keys.Hash)
	for _, p := range parts[1:] {
		if c.Divided && hashTag(p.Limiter.(*Limiter).Keys.Hash) != tag {
			return false
		}
	}
	return true
}

// AcquireAll makes one attempt at all parts, for whose limiters [Conn.Joint] reports true, and returns the
// indexes of those that reject. Its errors are like those of [Limiter.Acquire]; for a *[permit.WrongTypeError]
// it corrects the type of the part.
func (c *Conn) AcquireAll(ctx context.Context, parts []permit.Part, replay bool) ([]int, error) {
	var keys [3 * JointParts]string
	args := [4 + JointParts]any{1: c.now(), 2: 0, 3: c.KeyTTL.Milliseconds()}
	if replay {
		args[2] = 1
	}
	var list []byte
	for i := range JointParts {
		if i >= len(parts) { // any key of the same slot
			copy(keys[3*i:], keys[:3])
			args[4+i] = ""
			continue
		}
		p := parts[i]
		copy(keys[3*i:], p.Limiter.(*Limiter).Keys.Of(p.Type))
		list = append(append(list, wire(p.Type)...), ' ')
		list = append(strconv.AppendInt(list, p.Permits, 10), ' ')
		list = append(strconv.AppendInt(list, p.Floor, 10), ' ')
		args[4+i] = c.member(p.ID, uint32(p.Permits))
	}
	args[0] = list
	cmd, err := c.Scripts.AcquireAll.Command(keys[:], args[:]...)
	if err != nil {
		return nil, err
	}
	raw, err := parts[0].Limiter.(*Limiter).once(ctx, c.senderOf(replay), c.Scripts.AcquireAll, cmd, 1)
	if err != nil {
		return nil, err
	}
	return c.readAcquireAll(parts, raw)
}

func (c *Conn) readAcquireAll(parts []permit.Part, raw any) ([]int, error) {
	l, s := parts[0].Limiter.(*Limiter), c.Scripts.AcquireAll
	r, err := l.numbers(s, raw)
	if err != nil {
		return nil, err
	}
	if r[0] == statusOK {
		rejected := make([]int, 0, len(r)-1)
		for _, n := range r[1:] {
			if n < 1 || n > int64(len(parts)) {
				return nil, l.badReply(s, raw)
			}
			rejected = append(rejected, int(n-1))
		}
		return rejected, nil
	}
	if len(r) < 2 || r[1] < 1 || r[1] > int64(len(parts)) {
		return nil, l.badReply(s, raw)
	}
	p := &parts[r[1]-1]
	l = p.Limiter.(*Limiter)
	if r[0] == statusExceeds && len(r) == 3 {
		return nil, permit.Exceeds(l.Name, p.Permits, p.Floor, r[2])
	}
	err = l.statusError(append([]int64{r[0]}, r[2:]...))
	var other *permit.WrongTypeError
	if errors.As(err, &other) {
		p.Type = other.Type
	}
	return nil, err
}
