// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"strconv"

	"github.com/goredisson/ratelimiter/internal/permit"
)

// InOneCall reports whether one script can decide all of the parts. Each of their limiters is a *[Limiter].
func (c *Conn) InOneCall(parts []permit.Part) bool {
	if len(parts) > OneCallParts {
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

// AcquireAll makes one attempt at all parts, and returns the indexes of those that reject. [Conn.InOneCall] must report
// true for the parts. It sets their types. Its errors are like those of [Limiter.Acquire].
func (c *Conn) AcquireAll(ctx context.Context, parts []permit.Part, replay bool) (rejected []int, err error) {
	for i := range parts {
		if l := parts[i].Limiter.(*Limiter); l.hints != nil && !replay { // a replay asks for the same again
			parts[i].Type = l.Type()
		}
	}
	for changes := 0; ; changes++ {
		rejected, err = c.acquireAll(ctx, parts, replay)
		if _, wrong := err.(*permit.WrongTypeError); !wrong {
			return rejected, err
		}
		if changes == permit.MaxTypeChanges*len(parts) {
			return nil, permit.TypeKeepsChanging("acquire", parts[0].Limiter.(*Limiter).Name)
		}
	}
}

func (c *Conn) acquireAll(ctx context.Context, parts []permit.Part, replay bool) ([]int, error) {
	var keys [3 * OneCallParts]string
	args := [4 + OneCallParts]any{1: c.now(), 2: words(word{replay, "replay"}, word{c.SharedClock, "mark"}), 3: c.KeyTTL.Milliseconds()}
	var list []byte
	for i := range OneCallParts {
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
		args[4+i] = Member(c.LongLength, p.ID, uint32(p.Permits))
	}
	args[0] = list
	cmd, err := c.Scripts.AcquireAll.Command(keys[:], args[:]...)
	if err != nil {
		return nil, err
	}
	raw, err := parts[0].Limiter.(*Limiter).once(ctx, c.Scripts.AcquireAll, cmd, 1, replay)
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
			if -n >= 1 && -n <= int64(len(parts)) {
				parts[-n-1].Limiter.(*Limiter).otherLayout()
				continue
			}
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
	if other, wrong := err.(*permit.WrongTypeError); wrong {
		p.Type = other.Type
		l.hints.learnType(other.Type)
	}
	return nil, err
}
