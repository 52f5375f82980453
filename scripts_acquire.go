package ratelimiter

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// What the scripts that take permits, and give them back, are asked and answer; see scripts.go.

// An ask is one acquire call.
type ask struct {
	typ           RateType
	id            requestID
	runs          []run // 1 to maxRuns
	replay        bool
	check         bool // that value and the permits in use make up the rate
	lowered       bool // the rate was; with check
	inOrder       bool
	probe         bool      // take nothing
	at            time.Time // another instant than now; zero for now
	noTTL         bool      // the hash had none a moment ago
	walked        int64
	walkedPermits int64
	share         share // of callers that wait
}

// A run is a number of equal requests. In one call that number, and that of the runs, is bounded by
// what a replay has to look for.
type run struct {
	permits int64
	count   int64
	callers []*request // the engine's; nil where a caller left
}

const (
	maxRuns  = 128
	maxBatch = 1024
)

// An answer is what an acquire call says.
type answer struct {
	granted       []int64 // requests, by run; -1 where the permits exceed the rate
	wait          time.Duration
	available     int64
	now           time.Time
	rate          Rate
	again         int64
	walked        int64
	walkedPermits int64
	skew          time.Duration
	noTTL         bool  // the hash had none; false also where the call did not look
	found         found // where the call had a share
}

func (l *RateLimiter) acquireCommand(a *ask) ([]any, error) {
	c := l.client
	flags := 0
	if a.replay {
		flags |= flagReplay
	}
	if a.check {
		flags |= flagCheck
		if a.lowered {
			flags |= flagLowered
		}
	}
	now := c.now()
	if !a.at.IsZero() {
		now = a.at.UnixMilli()
	} else if c.cfg.trusted { // behind now every score would be marked
		flags |= flagMark
	}
	if a.inOrder {
		flags |= flagInOrder
	}
	if a.probe {
		flags |= flagProbe
	}
	if a.noTTL {
		flags |= flagNoTTL
	}
	// Where it is too much for a member the script makes smaller ones.
	whole := uint32(min(a.runs[0].permits*a.runs[0].count, maxPermits))
	args := [10]any{a.typ.wire(), a.runs[0].permits, a.runs[0].count, encodeMember(c.cfg.memberFormat, a.id.run(0), whole), flags}
	n := 5
	if a.typ == PerClient || len(a.runs) > 1 || a.walked > 0 || now != "" || a.share.on {
		walk := ""
		if a.walked > 0 {
			walk = fmt.Sprint(a.walked, " ", a.walkedPermits)
		}
		args[5], args[6], args[7], args[8] = now, furtherRuns(a.runs[1:]), c.cfg.clientKeyTTL.Milliseconds(), walk
		args[9], n = "", 10
		if a.share.on {
			args[9] = a.share.String()
		}
	}
	return acquireScript.Command(l.keys.of(a.typ), args[:n]...)
}

// readAcquire reads the reply to a.
func (l *RateLimiter) readAcquire(a *ask, raw any) (answer, error) {
	r, err := l.numbers(acquireScript, raw)
	if err != nil {
		return answer{}, err
	}
	if (len(r) == 6 || len(r) == 7) && len(a.runs) == 1 && r[0] == statusOK {
		r[0] = a.runs[0].count
		return answer{
			granted:   r[:1:1],
			available: r[1],
			now:       time.UnixMilli(r[2]),
			rate:      Rate{Type: a.typ, Permits: r[3], Interval: ms(r[4]), KeepAlive: ms(r[5])},
			noTTL:     len(r) == 7 && r[6] == 0,
		}, nil
	}
	if r[0] == statusExceeds && len(r) == 2 {
		none := answer{granted: make([]int64, len(a.runs)), rate: Rate{Permits: r[1]}}
		for i := range none.granted {
			none.granted[i] = -1
		}
		return none, nil
	}
	if err := l.statusError(r); err != nil {
		return answer{}, err
	}
	var f found
	if n := 13 + len(a.runs); a.share.on && len(r) >= n+8 && r[n+7] >= 0 && int64(len(r)-n-8) >= 2*r[n+7] {
		f = found{soon: ms(r[n]), young: r[n+1], wire: r[n+2]&1 == 1, left: r[n+2]&2 == 2, mine: r[n+3], theirs: r[n+4], ours: r[n+5],
			blocked: r[n+6]}
		f.waiting, f.tags = r[n+8:n+8+2*int(r[n+7])], r[n+8+2*int(r[n+7]):]
		r = r[:n:n]
	} else if a.share.on || len(r) != n {
		return answer{}, l.badReply(acquireScript, raw)
	}
	granted := r[1:2:2]
	if len(a.runs) > 1 {
		granted = append(granted, r[14:]...)
	}
	for i, n := range granted {
		if n < -1 || n > a.runs[i].count {
			return answer{}, l.badReply(acquireScript, raw)
		}
	}
	return answer{
		granted:       granted,
		wait:          ms(r[2]),
		available:     r[3],
		now:           time.UnixMilli(r[4]),
		rate:          Rate{Type: a.typ, Permits: r[5], Interval: ms(r[6]), KeepAlive: ms(r[7]), MinGap: ms(r[12])},
		again:         r[8],
		walked:        r[9],
		walkedPermits: r[10],
		skew:          ms(r[11]),
		noTTL:         r[13] == 0,
		found:         f,
	}, nil
}

func furtherRuns(runs []run) string {
	if len(runs) == 0 {
		return ""
	}
	var b []byte
	for _, r := range runs {
		b = strconv.AppendInt(b, r.permits, 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, r.count, 10)
		b = append(b, ' ')
	}
	return string(b)
}

func (c *Client) acquireAllCommand(parts []part, replay bool) ([]any, error) {
	var keys [3 * scriptParts]string
	args := [4 + scriptParts]any{1: c.now(), 2: 0, 3: c.cfg.clientKeyTTL.Milliseconds()}
	if replay {
		args[2] = 1
	}
	var list []byte
	for i := range scriptParts {
		if i >= len(parts) { // any key of the same slot
			copy(keys[3*i:], keys[:3])
			args[4+i] = ""
			continue
		}
		p := parts[i]
		copy(keys[3*i:], p.Limiter.keys.of(p.typ))
		list = append(append(list, p.typ.wire()...), ' ')
		list = append(strconv.AppendInt(list, p.Permits, 10), ' ')
		args[4+i] = encodeMember(c.cfg.memberFormat, p.id, uint32(p.Permits))
	}
	args[0] = list
	return acquireAllScript.Command(keys[:], args[:]...)
}

// readAcquireAll answers the places of the parts that refuse.
func (c *Client) readAcquireAll(parts []part, raw any) ([]int, error) {
	l := parts[0].Limiter
	r, err := l.numbers(acquireAllScript, raw)
	if err != nil {
		return nil, err
	}
	if r[0] == statusOK {
		refused := make([]int, 0, len(r)-1)
		for _, n := range r[1:] {
			if n < 1 || n > int64(len(parts)) {
				return nil, l.badReply(acquireAllScript, raw)
			}
			refused = append(refused, int(n-1))
		}
		return refused, nil
	}
	if len(r) < 2 || r[1] < 1 || r[1] > int64(len(parts)) {
		return nil, l.badReply(acquireAllScript, raw)
	}
	p := &parts[r[1]-1]
	if r[0] == statusExceeds && len(r) == 3 {
		return nil, p.Limiter.exceeds(p.Permits, r[2])
	}
	err = p.Limiter.statusError(append([]int64{r[0]}, r[2:]...))
	var other *otherTypeError
	if errors.As(err, &other) {
		p.typ = other.typ
		p.Limiter.learn(other.typ)
	}
	return nil, err
}

func (l *RateLimiter) giveBackCommand(typ RateType, o orphan) ([]any, error) {
	f := l.client.cfg.memberFormat
	var smaller []byte
	if o.keeps > 0 {
		smaller = encodeMember(f, o.id, uint32(o.keeps))
	}
	return giveBackScript.Command(l.keys.of(typ), typ.wire(), encodeMember(f, o.id, uint32(o.had)), smaller, o.had-o.keeps)
}

func (v *reservation) command(want int64, whole bool) ([]any, error) {
	c, flags := v.l.client, 0
	if whole {
		flags |= flagWhole
	}
	if v.unsure {
		flags |= flagUnsure
	}
	return reserveScript.Command(v.l.keys.of(v.typ), v.typ.wire(), want, encodeMember(c.cfg.memberFormat, v.id, uint32(v.held)),
		v.held, flags, c.now(), c.cfg.clientKeyTTL.Milliseconds())
}

// readReserve returns how many permits are reserved from now on.
func (v *reservation) readReserve(raw any) (held int64, err error) {
	r, err := v.l.numbers(reserveScript, raw)
	if err != nil {
		return 0, err
	}
	if r[0] == statusExceeds && len(r) == 2 {
		return 0, v.l.exceeds(v.permits, r[1])
	}
	if err := v.l.statusError(r); err != nil {
		return 0, err
	}
	if len(r) != 4 || r[1] < 0 || r[1] > maxPermits {
		return 0, v.l.badReply(reserveScript, raw)
	}
	v.rate.Permits, v.rate.Interval = r[2], ms(r[3])
	return r[1], nil
}
