// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A parcel is a command of a pipeline: that of one call, or of several calls of one script.
type parcel struct {
	calls []*call
	joint bool
	OnceCmd
}

// pack returns the calls in parcels, in the order of the first call of each. If texts is true, the first parcel with a
// text carries it.
func (l *lane) pack(ctx context.Context, calls []*call, texts bool) []parcel {
	list := make([]parcel, 0, len(calls))
	together := l.joins.allowed()
	for i, c := range calls {
		at := -1
		if together {
			at = slices.IndexFunc(list, func(p parcel) bool { return p.takes(c) })
		}
		if at >= 0 {
			list[at].calls = append(slices.Grow(list[at].calls, len(calls)-i), c)
		} else {
			list = append(list, parcel{calls: calls[i : i+1 : i+1]})
		}
	}
	var carried []any // the SHA-1s of the texts
	for i := range list {
		p := &list[i]
		args, eval := p.calls[0].evalsha, p.calls[0].script.eval
		if p.joint = len(p.calls) > 1; p.joint {
			j := p.calls[0].joint()
			args, eval = j.command(p.calls), j.eval
		}
		if texts && !slices.Contains(carried, args[1]) {
			carried = append(carried, args[1])
			args = eval(args)
		}
		p.OnceCmd = OnceCmd{redis.NewCmd(ctx, args...)}
	}
	return list
}

// takes reports whether c can join the calls of p.
func (p parcel) takes(c *call) bool {
	first := p.calls[0]
	return first.script == c.script && len(first.evalsha) == len(c.evalsha) && c.joint() != nil
}

// joint returns what makes calls like c in one command, or nil.
func (c *call) joint() *joint {
	if len(c.evalsha) == 3+c.script.Keys+c.script.Args {
		return c.script.joints.all()
	}
	return c.script.joints.fewer()
}

// share gives each call of a joint its part of the reply. It reports false if the calls were not executed. A call that met
// READONLY is to be sent by itself: go-redis, which closes a connection when it reads that, because the name may lead to
// another server now, does not read it in a list. So is one that found nothing: a proxy may have several servers behind it, and
// one of them has run all calls.
func (p parcel) share(reply any) bool {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	list = list[1:]
	for _, c := range p.calls {
		c.reply, list, c.err = part(list)
		c.resend = c.err != nil && redis.HasErrorPrefix(c.err, "READONLY") || c.script.missing(c.reply)
	}
	return true
}

// measured reports whether a pipeline has to end with a TIME, so that it is known how long Redis took. In a joint TIME
// would not tell: since Redis 7.2 it stands still while a script runs.
func measured(parcels []parcel) bool {
	return slices.ContainsFunc(parcels, func(p parcel) bool { return p.joint })
}

// busy returns for how many of the calls in parcels it is known how long Redis took, and how long it took for these. The
// last command of the pipeline, if it is measured, was clock.
func busy(parcels []parcel, clock *redis.TimeCmd) (calls int, took time.Duration) {
	first, last := parcels[0], parcels[len(parcels)-1]
	if clock == nil {
		if from, ok := first.calls[0].script.instant(first.OnceCmd); ok {
			if to, ok := last.calls[0].script.instant(last.OnceCmd); ok {
				return len(parcels), to.Sub(from)
			}
		}
		return 0, 0
	}
	var began int64
	for _, p := range parcels {
		if list, ok := p.Val().([]any); ok && p.joint && len(list) > 0 && began == 0 {
			began, _ = list[0].(int64)
		}
		if began > 0 {
			calls += len(p.calls)
		}
	}
	if calls == 0 || clock.Err() != nil {
		return 0, 0
	}
	return calls, clock.Val().Sub(time.UnixMicro(began))
}
