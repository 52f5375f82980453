// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/goredisson/ratelimiter/internal/wire"
	"github.com/redis/go-redis/v9"
)

// A Kind tells what of a limiter there is.
type Kind int

const (
	Live    Kind = iota // a hash with a rate
	Remains             // permits whose hash is gone
	Told                // the note that package httplimit keeps beside a limiter in a cool-down; nobody acquires from it
	Hidden              // one that was found before, and that the ACL does not let us read any more
)

// String returns the kind in one word.
func (k Kind) String() string { return [...]string{"limiter", "remains", "told", "hidden"}[k] }

// fields are the fields of a limiter's hash.
var fields = []string{"rate", "interval", "type", "keepAliveTime", "minGap", "coolDown", "reopenUntil", "keptUntil", "waiting"}

// A Limiter is what a list shows of one limiter: its state, of which a list reads less than [Survey.Read] does, and what follows from it. Its
// keys were read one after another within a moment, so that a limiter in use may seem to have one grant more or less than it has.
// Those of a PER_CLIENT limiter as a whole are not read.
type Limiter struct {
	*State
	Kind    Kind
	Unsure  bool  // the hash alone does not show that it is a limiter's
	Broken  error // why calls fail although the hash is that of a limiter, or nil; it wraps ErrWrongType
	Expired int64 // members that the next caller reclaims

	told    Peek          // a caller that asks for one permit
	queued  time.Duration // what such a caller waits behind those that wait already
	waiting Waiting
	blocked int64 // permits that a cool-down holds and nobody was granted
	unread  error // why it could not be read
}

// Limiter returns what a list shows of st.
func (st *State) Limiter() *Limiter {
	l := &Limiter{State: st}
	for _, m := range st.Members {
		if st.expired(m) {
			l.Expired++
		}
	}
	if st.Problem == nil {
		l.Broken = st.WrongType()
		l.ask()
	} else if errors.Is(st.Problem, permit.ErrNotInitialized) {
		l.Kind = Remains
	}
	return l
}

// Newest returns the newest member, or nil if there is none.
func (st *State) Newest() *Member {
	if n := len(st.Members); n > 0 {
		return &st.Members[n-1]
	}
	return nil
}

// A Member is one member of a permits set with its score.
type Member struct {
	wire.Member
	Raw   string
	Score float64 // in ms since the epoch
}

func memberOf(z redis.Z) Member {
	raw, _ := text(z.Member)
	m, _ := wire.ParseMember([]byte(raw))
	return Member{m, raw, z.Score}
}

func membersOf(zs []redis.Z) []Member {
	list := make([]Member, len(zs))
	for i, z := range zs {
		list[i] = memberOf(z)
	}
	return list
}

// Time returns the score as an instant.
func (m Member) Time() time.Time {
	const limit = 1 << 53
	return time.UnixMilli(int64(max(-limit, min(limit, m.Score))))
}

// Mark returns what a member of this package stands for that is nobody's grant: 't' for a grant whose score lies
// ahead of the clock, 'w' for a tripwire of callers that wait, 'c' for permits that a cool-down blocks, 'l' for those
// that it has given back. For every other member it returns 0.
func (m Member) Mark() byte {
	if len(m.ID) < 2 || m.ID[0] != '~' || len(m.ID) == 16 && m.ID[2] != '~' || !strings.ContainsRune("twcl", rune(m.ID[1])) {
		return 0
	}
	if y := m.Layout(); y != wire.LayoutOurs && y != wire.LayoutLc0I {
		return 0
	}
	return m.ID[1]
}

// FastWriter is what [Member.Writers] says of a grant that Go has marked.
const FastWriter = "somebody whose clock is fast"

// Writers returns who has written m, in words. Go marks grants of others whose clock is fast, which then have its layout.
func (m Member) Writers() string {
	if m.Mark() == 't' {
		return FastWriter
	}
	return m.Layout().Writers()
}

// Seen returns when Go first met a grant that was ahead of the clock of Redis. It reports false if it has not marked m.
func (m Member) Seen() (time.Time, bool) {
	at, ok := seenAt(m.Raw)
	return time.UnixMilli(int64(at)), ok
}

// Marks say what a member is that is nobody's grant, by its [Member.Mark].
var Marks = map[byte]string{'w': "callers wait", 'c': "cool-down", 'l': "after a cool-down", 't': "ahead of the clock"}

// Expired reports whether the permits of m have come back at now.
func (m Member) Expired(now time.Time, interval time.Duration) bool {
	return redisson.Expired([]byte(m.Raw), m.Score, now.UnixMilli()-interval.Milliseconds())
}

// instant returns the field of the hash that holds an instant in ms, or the zero time.
func instant(fields map[string]string, field string) time.Time {
	if at := redisson.Instant(fields[field]); at > 0 {
		return time.UnixMilli(int64(at))
	}
	return time.Time{}
}

// whole returns value as a number by the rule of the scripts: digits that do not begin with 0, from -2^53 to 2^53.
func whole(value string) (int64, bool) {
	digits := strings.TrimPrefix(value, "-")
	if value != "0" && (digits == "" || digits[0] < '1' || digits[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return n, err == nil && n >= -1<<53 && n <= 1<<53
}

// Unknown is what Available, Used and Wait return if too little of the limiter was read to tell, or calls fail.
const Unknown = -1

// ask finds out what a caller would be told that asks for one permit. It reports false if that takes more members than
// were read.
func (l *Limiter) ask() bool {
	if l.Kind != Live || l.Problem != nil {
		return true
	}
	l.blocked = l.State.blocked()
	l.told, _ = l.peek(1) // one permit is not too many for any rate
	if l.waiting = l.State.Waiting(); l.waiting.Callers > 0 && (l.Rate.Type == permit.Overall || l.ClientID != "") {
		l.queued = l.Behind(l.waiting.Callers, 1, l.told)
	}
	return l.told.Known || l.Rate.Type != permit.Overall
}

// Behind returns how long a caller that asks for that many permits waits, about, behind callers that ask for one each; alone is what
// it would be told if none did.
func (st *State) Behind(callers, permits int64, alone Peek) time.Duration {
	before := callers + permits - 1
	rest, rounds := before%st.Rate.Permits+1, before/st.Rate.Permits
	pk, err := st.peek(rest)
	if err != nil || !pk.Known {
		pk = alone
	}
	return max(alone.Wait, pk.Wait+time.Duration(min(float64(rounds)*float64(st.Rate.Interval), float64(math.MaxInt64/2))))
}

// Why returns what a caller waits for, in words, or nothing.
func (l *Limiter) Why() string { return l.told.Why }

// Waiting returns who waits, as far as the set tells.
func (l *Limiter) Waiting() Waiting { return l.waiting }

// Queued returns what a caller waits for one permit behind those that wait already, if each of them asks for one and nobody else
// comes. It is Wait if nobody waits.
func (l *Limiter) Queued() time.Duration {
	if w := l.Wait(); w == Unknown || l.waiting.Callers == 0 {
		return w
	}
	return max(l.queued, l.Wait())
}

// known reports whether it is known what a caller would be told.
func (l *Limiter) known() bool { return l.told.Known && l.Broken == nil }

// Available returns how many permits are left, as a caller would be told that asks for one. It is Unknown for a PER_CLIENT
// limiter that is in no cool-down.
func (l *Limiter) Available() int64 {
	if !l.known() {
		return Unknown
	}
	return l.told.Available
}

// Wait returns how long a caller waits for one permit, 0 if it gets one at once, and Unknown in the cases of Available.
func (l *Limiter) Wait() time.Duration {
	if !l.known() {
		return Unknown
	}
	return l.told.Wait
}

// Limited reports whether a caller that asks for one permit does not get it now: it has to wait, or its call fails.
func (l *Limiter) Limited() bool {
	return l.Wait() > 0 || l.Stuck() || l.Kind == Live && (l.Problem != nil || l.Broken != nil)
}

// Stuck reports whether fewer permits are left than the rate and none is in use: callers of Redisson fail, and the
// next call of this package fixes it.
func (l *Limiter) Stuck() bool {
	value, ok := l.ValueNumber()
	sum, _, all := l.Sum()
	return l.known() && l.Rate.Type == permit.Overall && ok && all && l.Count == l.Expired && value+sum < l.Rate.Permits
}

// Used returns the permits that are not available, without those that a cool-down blocks; or Unknown.
func (l *Limiter) Used() int64 {
	if !l.known() || l.Rate.Type != permit.Overall && l.ClientID == "" {
		return Unknown
	}
	return max(0, l.Rate.Permits-l.told.Available-l.blocked)
}

// parse fills in what follows from the fields.
func (l *Limiter) parse() {
	l.Rate, l.Problem = redisson.ParseRate(l.Fields)
	if l.Kind == Live && strings.HasSuffix(l.Name, "}:told") {
		l.Kind = Told
	}
}

// expiredBefore is the highest score that has expired at now, as an argument of ZCOUNT.
func expiredBefore(now time.Time, interval time.Duration) string {
	at := now.UnixMilli()
	ms := interval.Milliseconds()
	if at < math.MinInt64+ms {
		return "-inf"
	}
	return strconv.FormatInt(at-ms, 10)
}

// ValueKey returns the key of the permits that are left, which all clients of a limiter share.
func ValueKey(name string) string { return keysOf(name, "")[1] }
