// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
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
	t   testing.TB
	rdb *redis.Client

	asking  sync.Mutex // held by one caller of at
	mu      sync.Mutex
	entries map[string][]entry // by the key of the permits set, in the order of execution
	last    map[string]place   // of the last grant with this key and member
	ids     map[string]float64 // score of the last grant with this key and random part

	call   scriptWords       // the script of ours that is running, if it does more than grant
	queues map[string]string // who takes permits ahead of their return, the first first, by the key that holds it

	echoed chan string
	ended  chan struct{}
}

// A place is where a grant is among the entries, -1 for what is not granted yet, and its score.
type place struct {
	index int
	score float64
}

// startLedger begins to watch the server of a client.
func startLedger(t testing.TB, rdb *redis.Client) *ledger {
	t.Helper()
	l := &ledger{t: t, rdb: rdb, entries: map[string][]entry{}, last: map[string]place{}, ids: map[string]float64{}, queues: map[string]string{}}
	l.attach()
	return l
}

// attach begins to watch. It returns when Redis has confirmed that it reports from now on.
func (l *ledger) attach() {
	l.t.Helper()
	conn := redistest.Must(net.Dial("tcp", l.rdb.Options().Addr))(l.t)
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
		source, rest, _ := strings.Cut(rest, "] ")
		byScript := strings.HasSuffix(source, " lua") // others spoil a limiter, or restore it
		operation, _, _ := strings.Cut(rest, " ")
		l.mu.Lock()
		switch strings.ToLower(operation) {
		case `"zadd"`:
			if byScript {
				l.zadd(stamp, words(rest))
			}
		case `"evalsha"`, `"eval"`:
			l.call = nil
			for _, s := range moreThanGrants() {
				if strings.Contains(rest, s.Sha) || strings.Contains(rest, "-- "+s.Name+": ") {
					l.call = append(scriptWords{s.Name}, words(rest)...)
				}
			}
		case `"set"`:
			if w := words(rest); len(w) > 2 && w[1] == l.call.of(reserveScript, reserveQueue) {
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
		l.mu.Unlock()
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

// The scripts of ours that do more than grant: one refunds grants whose callers have left, and by the other a list holds
// permits until it has all of them. What a reserve removes is not granted, and what it adds is.
const giveBackScript, reserveScript = "give_back", "reserve"

// moreThanGrants are these scripts as they are sent.
var moreThanGrants = sync.OnceValue(func() []*dispatch.Script {
	return slices.DeleteFunc(dispatch.Loaded(), func(s *dispatch.Script) bool { return s.Name != giveBackScript && s.Name != reserveScript })
})

// scriptWords are the name of a script and the words of its call.
type scriptWords []string

// The words of a give_back, whose grant counts as never made but for what it becomes, and those of a reserve.
const (
	backMember, backSmaller   = 7, 8
	reserveQueue, reserveName = 6, 14
)

// of returns a word of the call if it runs that script.
func (c scriptWords) of(script string, word int) string {
	if len(c) <= word+1 || c[0] != script {
		return ""
	}
	return c[word+1]
}

func (c scriptWords) runs(script string) bool { return len(c) > 0 && c[0] == script }

// lacks reports whether some of the permits that a reserve takes have not come back yet. Such a reservation is nobody's
// grant: its caller goes on only after a reserve which finds that nothing lacks. Until then its name is the first.
func (l *ledger) lacks() bool {
	name := l.call.of(reserveScript, reserveName)
	return name != "" && strings.HasPrefix(l.queues[l.call.of(reserveScript, reserveQueue)], name+" ")
}

// zrem takes out what a reserve moves and a give_back refunds. What others remove was granted all the same.
func (l *ledger) zrem(w []string) {
	if len(w) != 3 {
		return
	}
	key, member := w[1], w[2]
	left := int64(0)
	at, ok := l.last[key+member]
	ok = ok && at.index >= 0
	switch {
	case l.call.runs(reserveScript) && !strings.HasPrefix(member, "\x10~t~"): // otherwise a mark that is spent, which was a grant
		delete(l.last, key+member)
		if ok {
			l.entries[key][at.index].permits = 0
		}
	case ok && member == l.call.of(giveBackScript, backMember):
		if smaller := l.call.of(giveBackScript, backSmaller); smaller != "" {
			left = permitsOfMember(smaller)
			l.last[key+smaller] = place{at.index, l.entries[key][at.index].score}
		}
		l.entries[key][at.index].permits = left
	}
}

func (l *ledger) zadd(stamp string, w []string) {
	nx := len(w) == 5
	switch {
	case nx && strings.EqualFold(w[2], "XX"):
		return // the probe of an outage, which changes nothing
	case nx:
		w = append(w[:2:2], w[3:]...)
	case len(w) != 4:
		l.t.Errorf("ledger: %q", w)
		return
	case w[3] == l.call.of(giveBackScript, backSmaller):
		return // what is left of a grant
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
	reserves := l.call.runs(reserveScript)
	switch {
	case isBlock(member) || score == 0: // a block of a cool-down, or the tripwire of waiting callers
	case l.lacks():
		l.last[key+member], l.ids[key+idOf(member)] = place{-1, score}, score
	case !nx && !reserves && l.shrinks(key, member, score):
	default: // our scripts use NX, except for what a reserve moves
		l.add(key, member, entry{score: score, at: time.Unix(s, us*1000), java: !nx && !reserves})
	}
}

// shrinks reports whether the member is a grant that is already there, made smaller because part of it has expired or
// was taken out. It was granted all the same.
func (l *ledger) shrinks(key, member string, score float64) bool {
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
	e.permits = permitsOfMember(member)
	if before, ok := l.last[key+member]; ok && (before.score == e.score || !e.java) {
		return
	}
	l.last[key+member] = place{len(l.entries[key]), e.score}
	l.ids[key+idOf(member)] = e.score
	l.entries[key] = append(l.entries[key], e)
}

// permitsOfMember returns the permits of a grant, which every layout has at its end.
func permitsOfMember(member string) int64 {
	return int64(binary.LittleEndian.Uint32([]byte(member[len(member)-4:])))
}

// reconcile adds the grants of the set that the ledger has not seen, because the server died after it wrote a grant
// and before it reported it. Their time of execution is unknown. A grant that became smaller then has been seen.
func (l *ledger) reconcile(key string) (missed int) {
	l.t.Helper()
	members := redistest.Must(l.rdb.ZRangeWithScores(l.t.Context(), key, 0, -1).Result())(l.t)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, z := range members {
		member := z.Member.(string)
		if _, ok := l.last[key+member]; !ok && !l.shrinks(key, member, z.Score) {
			missed++
			m, _ := wire.ParseMember([]byte(member))
			e := entry{score: z.Score, java: m.Format != wire.FormatBc0I || member[4:8] != member[len(member)-4:]}
			e.at, e.unseen = e.scored(), true
			l.add(key, member, e)
		}
	}
	return missed
}

// at returns the grants under a key of permits until now. Several callers may wait for it at once.
func (l *ledger) at(key string) []entry {
	l.t.Helper()
	l.asking.Lock()
	defer l.asking.Unlock()
	token := fmt.Sprintf("%s until %d", key, time.Now().UnixNano())
	require.NoError(l.t, l.rdb.Echo(context.Background(), token).Err())
	for said := ""; said != token; {
		select {
		case said = <-l.echoed:
		case <-l.ended:
			require.FailNow(l.t, "MONITOR has ended")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[key])
}

// of returns the grants of an OVERALL limiter until now.
func (l *ledger) of(limiter string) []entry {
	l.t.Helper()
	return l.at("{" + limiter + "}:permits")
}

// isBlock reports whether m is a block added by a cool-down of ours, and not a grant.
func isBlock(m string) bool {
	return len(m) == 21 && (m[:4] == "\x10~c~" || m[:4] == "\x10~l~") || len(m) == 20 && (m[8:10] == "~c" || m[8:10] == "~l")
}
