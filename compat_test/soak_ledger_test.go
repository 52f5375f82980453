// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/goredisson/ratelimiter/wire"
)

// A ledger holds every grant on a server as Redis itself saw it: what MONITOR reports of the ZADDs that scripts ran.
// It misses none, whichever client sent the script and whether or not its reply arrived. A poller of the permits sets
// would miss what is reclaimed between two looks. What the callers report lacks the grants whose replies were lost,
// and tells when a reply arrived, not when the grant was made.
type ledger struct {
	t    testing.TB
	addr string

	mu      sync.Mutex
	entries map[string][]entry // by the key of the permits set, in the order of execution
	known   map[string]float64 // score of the last grant with this key and member
	place   map[string]int     // index of that grant among the entries
	ids     map[string]float64 // score of the last grant with this key and random part
	back    []string           // the give_back that is running, as it was sent
	reserve *reserveCall       // the reserve that is running: what it removes is not granted, and what it adds is
	queues  map[string]string  // who takes permits ahead of their return, the first first, by the key that holds it
	echoed  chan string
	ended   chan struct{}
}

// A reserveCall is what the ledger has to know of a reserve: the key of those that take permits ahead, and the name under
// which it does so itself, if it does.
type reserveCall struct{ queue, name string }

// An entry is one grant.
type entry struct {
	score   float64   // in ms, by the clock of the side that granted
	at      time.Time // of execution, by the clock of Redis
	permits int64
	java    bool
	unseen  bool // found by reconcile: nobody saw the execution, and at is the score
}

// lag returns by how much the score is behind the execution: less than a millisecond where the time is Redis's, and
// the time that the script was on its way where it is Java's.
func (e entry) lag() time.Duration { return e.at.Sub(e.scored()) }

// inTime reports whether the grant is known to have been executed underway at most after its score. Of an unseen one of
// Java's nobody knows; the score of an unseen one of ours is the time of Redis.
func (e entry) inTime() bool { return e.lag() <= underway && !(e.java && e.unseen) }

func (e entry) scored() time.Time {
	whole, part := math.Modf(e.score)
	return time.UnixMilli(int64(whole)).Add(time.Duration(part * float64(time.Millisecond)))
}

func startLedger(t testing.TB, addr string) *ledger {
	t.Helper()
	l := &ledger{t: t, addr: addr, entries: map[string][]entry{}, known: map[string]float64{}, place: map[string]int{}, ids: map[string]float64{}, queues: map[string]string{}}
	l.attach()
	return l
}

// attach begins to watch. It returns when Redis has confirmed that it reports from now on.
func (l *ledger) attach() {
	l.t.Helper()
	conn := redistest.Must(net.Dial("tcp", l.addr))(l.t)
	l.t.Cleanup(func() { _ = conn.Close() })
	redistest.Must(conn.Write([]byte("MONITOR\r\n")))(l.t)
	lines := bufio.NewReaderSize(conn, 1<<20)
	require.Equal(l.t, "+OK\r\n", redistest.Must(lines.ReadString('\n'))(l.t))
	l.echoed, l.ended = make(chan string, 16), make(chan struct{})
	go l.read(lines, l.echoed, l.ended)
}

// lost waits until everything that a server sent before it died has been read.
func (l *ledger) lost() { <-l.ended }

func (l *ledger) read(lines *bufio.Reader, echoed chan<- string, ended chan<- struct{}) {
	defer close(ended)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
		_, rest, _ = strings.Cut(rest, "] ")
		operation, _, _ := strings.Cut(rest, " ")
		switch strings.ToLower(operation) {
		case `"zadd"`:
			l.zadd(stamp, words(rest))
		case `"evalsha"`, `"eval"`:
			l.back = nil
			if strings.Contains(rest, giveBackSHA()) || strings.Contains(rest, "give_back: ") {
				l.back = words(rest)
			}
			l.reserve = nil
			if strings.Contains(rest, reserveSHA()) || strings.Contains(rest, "-- reserve: ") {
				l.reserve = &reserveCall{}
				if w := words(rest); len(w) > reserveName {
					l.reserve = &reserveCall{w[reserveQueue], w[reserveName]}
				}
			}
		case `"set"`:
			if w := words(rest); l.reserve != nil && len(w) > 2 && w[1] == l.reserve.queue {
				l.queues[w[1]] = w[2]
			}
		case `"del"`, `"unlink"`:
			if w := words(rest); len(w) == 2 {
				delete(l.queues, w[1])
			}
		case `"zrem"`:
			l.zrem(words(rest))
		case `"echo"`:
			if w := words(rest); len(w) == 2 {
				echoed <- w[1]
			}
		}
	}
}

// words undoes the quoting of MONITOR.
func words(text string) []string {
	var out []string
	text = strings.TrimRight(text, "\r\n")
	for text != "" {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return nil
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil
		}
		out = append(out, word)
		text = strings.TrimPrefix(text[len(quoted):], " ")
	}
	return out
}

// giveBackSHA is the hash of our script that refunds grants whose callers have left, and reserveSHA that of the
// script by which a list holds permits until it has all of them.
var giveBackSHA, reserveSHA = shaOf("give_back"), shaOf("reserve")

func shaOf(script string) func() string {
	return sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(dispatch.Source(os.DirFS(".."), script)))
		return hex.EncodeToString(sum[:])
	})
}

// The words of a give_back. What it refunds of member counts as never granted.
const backMember, backSmaller, backWords = 7, 8, 10

// The words of a reserve that takes permits ahead.
const reserveQueue, reserveName = 6, 14

// lacks reports whether some of the permits that a reserve takes have not come back yet. Such a reservation is nobody's
// grant: its caller goes on only after a reserve which finds that nothing lacks. Until then its name is the first.
func (l *ledger) lacks() bool {
	r := l.reserve
	return r != nil && r.name != "" && strings.HasPrefix(l.queues[r.queue], r.name+" ")
}

func (l *ledger) zrem(w []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserve != nil && len(w) == 3 {
		if strings.HasPrefix(w[2], "\x10~t~") {
			return // a mark that is spent, which was a grant
		}
		if at, ok := l.place[w[1]+w[2]]; ok {
			l.entries[w[1]][at].permits = 0
		}
		delete(l.known, w[1]+w[2])
		return
	}
	if len(l.back) != backWords || len(w) != 3 || w[2] != l.back[backMember] {
		return
	}
	key, smaller := w[1], l.back[backSmaller]
	at, ok := l.place[key+w[2]]
	if !ok {
		return
	}
	left := int64(0)
	if smaller != "" {
		left = int64(binary.LittleEndian.Uint32([]byte(smaller[len(smaller)-4:])))
		l.known[key+smaller], l.place[key+smaller] = l.entries[key][at].score, at
	}
	l.entries[key][at].permits = left
}

func (l *ledger) zadd(stamp string, w []string) {
	if len(l.back) == backWords && len(w) == 4 && w[3] == l.back[backSmaller] {
		return // not a grant
	}
	if len(w) == 5 && strings.EqualFold(w[2], "XX") {
		return // the probe of an outage, which changes nothing
	}
	nx := len(w) == 5
	java := !nx && l.reserve == nil // our scripts use NX, except for what a reserve moves
	if nx || len(w) != 4 {
		if len(w) != 5 {
			l.t.Errorf("ledger: %q", w)
			return
		}
		w = append(w[:2:2], w[3:]...)
	}
	key, member := w[1], w[3]
	score, err := strconv.ParseFloat(w[2], 64)
	seconds, micros, _ := strings.Cut(stamp, ".")
	s, err2 := strconv.ParseInt(seconds, 10, 64)
	us, err3 := strconv.ParseInt(micros, 10, 64)
	if err != nil || err2 != nil || err3 != nil || len(member) < 8 {
		l.t.Errorf("ledger: %q at %q", w, stamp)
		return
	}
	if isBlock(member) || score == 0 {
		return // nobody's grant: a block of a cool-down, or the tripwire of waiting callers
	}
	if l.lacks() {
		l.mu.Lock()
		l.known[key+member], l.ids[key+idOf(member)] = score, score
		l.mu.Unlock()
		return
	}
	if !nx && l.reserve == nil && l.shrinks(key, member, score) {
		return
	}
	l.add(key, member, entry{score: score, at: time.Unix(s, us*1000), java: java})
}

// shrinks reports whether the member is a grant that is already there, made smaller because part of it has expired or
// was taken out. It was granted all the same.
func (l *ledger) shrinks(key, member string, score float64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, ok := l.ids[key+idOf(member)]
	return ok && before == score
}

// idOf returns the random part of a member, which the member keeps when it becomes smaller.
func idOf(member string) string {
	if n := len(member); n == 21 && member[4:8] == member[17:] {
		return member[:4] + member[8:17]
	}
	return member[:len(member)-4]
}

// add adds a grant unless it is not new: one of ours whose member is there already, or one of Java's with the same
// member and score, which was sent again. Java's 8-byte members repeat by chance now and then.
func (l *ledger) add(key, member string, e entry) {
	e.permits = int64(binary.LittleEndian.Uint32([]byte(member[len(member)-4:])))
	l.mu.Lock()
	defer l.mu.Unlock()
	before, ok := l.known[key+member]
	if ok && (before == e.score || !e.java) {
		return
	}
	l.known[key+member], l.place[key+member] = e.score, len(l.entries[key])
	l.ids[key+idOf(member)] = e.score
	l.entries[key] = append(l.entries[key], e)
}

// reconcile adds the grants of the set that the ledger has not seen, because the server died after it wrote a grant
// and before it reported it. Their time of execution is unknown. A grant that became smaller then has been seen.
func (l *ledger) reconcile(rdb redis.UniversalClient, key string) (missed int) {
	l.t.Helper()
	members := redistest.Must(rdb.ZRangeWithScores(l.t.Context(), key, 0, -1).Result())(l.t)
	for _, z := range members {
		member := z.Member.(string)
		l.mu.Lock()
		_, ok := l.known[key+member]
		l.mu.Unlock()
		if !ok && !l.shrinks(key, member, z.Score) {
			missed++
			m, _ := wire.ParseMember([]byte(member))
			e := entry{score: z.Score, java: m.Format != wire.FormatBc0I || member[4:8] != member[len(member)-4:]}
			e.at, e.unseen = e.scored(), true
			l.add(key, member, e)
		}
	}
	return missed
}

// of returns the grants of a limiter until now.
func (l *ledger) of(rdb redis.UniversalClient, limiter string) []entry {
	l.t.Helper()
	token := fmt.Sprintf("%s until %d", limiter, time.Now().UnixNano())
	require.NoError(l.t, rdb.Echo(l.t.Context(), token).Err())
	for said := ""; said != token; {
		select {
		case said = <-l.echoed:
		case <-l.ended:
			require.FailNow(l.t, "MONITOR has ended")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries["{"+limiter+"}:permits"])
}

// fullest returns the most permits in any half-open window, by the time that when returns.
func fullest(entries []entry, window time.Duration, when func(entry) time.Time) int64 {
	return permitsIn(fullestOf(entries, window, when))
}

// fullestOf returns the grants of the window that holds the most permits.
func fullestOf(entries []entry, window time.Duration, when func(entry) time.Time) []entry {
	return redistest.Fullest(entries, window, func(e entry) (begin, end time.Time, permits int64) { return when(e), when(e), e.permits })
}

func byScore(e entry) time.Time     { return e.scored() }
func byExecution(e entry) time.Time { return e.at }

func only(entries []entry, want func(entry) bool) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return !want(e) })
}

func permitsIn(entries []entry) (sum int64) {
	for _, e := range entries {
		sum += e.permits
	}
	return sum
}
