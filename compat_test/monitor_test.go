// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bufio"
	"context"
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

	"github.com/goredisson/ratelimiter/internal/grantlog"
	"github.com/goredisson/ratelimiter/internal/redistest"
)

// A monitor holds every grant on a server as Redis itself saw it: what MONITOR reports of the ZADDs that scripts ran.
// It misses none, whichever client sent the script and whether or not its reply arrived. A poller of the permits sets
// would miss what is reclaimed between two looks. What the callers report lacks the grants whose replies were lost,
// and tells when a reply arrived, not when the grant was made.
type monitor struct {
	t   testing.TB
	rdb *redis.Client

	asking sync.Mutex // held by one caller of at
	mu     sync.Mutex
	grants map[string]grantlog.Grants // by the key of the permits set, in the order of execution
	last   map[string]place           // of the last grant with this key and member
	ids    map[string]time.Time       // score of the last grant with this key and random part

	call   scriptWords       // the script of ours that is running, if it does more than grant
	queues map[string]string // who takes permits ahead of their return, the first first, by the key that holds it

	echoed chan string
	ended  chan struct{}
}

// startMonitor begins to watch the server of a client.
func startMonitor(t testing.TB, rdb *redis.Client) *monitor {
	t.Helper()
	l := &monitor{t: t, rdb: rdb, grants: map[string]grantlog.Grants{}, last: map[string]place{}, ids: map[string]time.Time{}, queues: map[string]string{}}
	l.attach()
	return l
}

// attach begins to watch. It returns when Redis has confirmed that it reports from now on.
func (l *monitor) attach() {
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
func (l *monitor) lost() { <-l.ended }

func (l *monitor) read(lines *bufio.Reader, echoed chan<- string, ended chan<- struct{}) {
	defer close(ended)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
		source, rest, _ := strings.Cut(rest, "] ")
		w := words(rest)
		if len(w) == 0 {
			l.t.Errorf("monitor: %q", line)
			continue
		}
		l.mu.Lock()
		switch strings.ToLower(w[0]) {
		case "zadd":
			if strings.HasSuffix(source, " lua") { // others spoil a limiter, or restore it
				l.zadd(stamp, w)
			}
		case "evalsha", "eval":
			l.call = nil
			for _, s := range moreThanGrants() {
				if len(w) > 1 && (strings.Contains(w[1], s.Sha) || strings.Contains(w[1], "-- "+s.Name+": ")) {
					l.call = append(scriptWords{s.Name}, w...)
				}
			}
		case "set":
			if len(w) > 2 && w[1] == l.call.of(reserveScript, reserveQueue) {
				l.queues[w[1]] = w[2]
			}
		case "del", "unlink":
			if len(w) == 2 {
				delete(l.queues, w[1])
			}
		case "zrem":
			l.zrem(w)
		case "echo":
			if len(w) == 2 {
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

// at returns the grants under a key of permits until now. Several callers may wait for it at once.
func (l *monitor) at(key string) grantlog.Grants {
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
	return slices.Clone(l.grants[key])
}

// of returns the grants of an OVERALL limiter until now.
func (l *monitor) of(limiter string) grantlog.Grants {
	l.t.Helper()
	return l.at("{" + limiter + "}:permits")
}
