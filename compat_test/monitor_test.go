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

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
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
	m := &monitor{t: t, rdb: rdb, grants: map[string]grantlog.Grants{}, last: map[string]place{}, ids: map[string]time.Time{}, queues: map[string]string{}}
	m.attach()
	return m
}

// attach begins to watch. It returns when Redis has confirmed that it reports from now on.
func (m *monitor) attach() {
	m.t.Helper()
	conn := redistest.Must(net.Dial("tcp", m.rdb.Options().Addr))(m.t)
	m.t.Cleanup(func() { _ = conn.Close() })
	redistest.Must(conn.Write([]byte("MONITOR\r\n")))(m.t)
	lines := bufio.NewReaderSize(conn, 1<<20)
	require.Equal(m.t, "+OK\r\n", redistest.Must(lines.ReadString('\n'))(m.t))
	m.echoed, m.ended = make(chan string, 16), make(chan struct{})
	go m.read(lines, m.echoed, m.ended)
}

// lost waits until everything that a server sent before it died has been read.
func (m *monitor) lost() { <-m.ended }

func (m *monitor) read(lines *bufio.Reader, echoed chan<- string, ended chan<- struct{}) {
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
			m.t.Errorf("monitor: %q", line)
			continue
		}
		m.mu.Lock()
		switch strings.ToLower(w[0]) {
		case "zadd":
			if strings.HasSuffix(source, " lua") { // others spoil a limiter, or restore it
				m.zadd(stamp, w)
			}
		case "evalsha", "eval":
			m.call = nil
			for _, s := range moreThanGrants() {
				if len(w) > 1 && (strings.Contains(w[1], s.Sha) || strings.Contains(w[1], "-- "+s.Name+": ")) {
					m.call = append(scriptWords{s.Name}, w...)
				}
			}
		case "set":
			if len(w) > 2 && w[1] == m.call.of(reserveScript, reserveQueue) {
				m.queues[w[1]] = w[2]
			}
		case "del", "unlink":
			if len(w) == 2 {
				delete(m.queues, w[1])
			}
		case "zrem":
			m.zrem(w)
		case "echo":
			if len(w) == 2 {
				echoed <- w[1]
			}
		}
		m.mu.Unlock()
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
func (m *monitor) at(key string) grantlog.Grants {
	m.t.Helper()
	m.asking.Lock()
	defer m.asking.Unlock()
	token := fmt.Sprintf("%s until %d", key, time.Now().UnixNano())
	require.NoError(m.t, m.rdb.Echo(context.Background(), token).Err())
	for said := ""; said != token; {
		select {
		case said = <-m.echoed:
		case <-m.ended:
			require.FailNow(m.t, "MONITOR has ended")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants[key])
}

// of returns the grants of an OVERALL limiter until now.
func (m *monitor) of(limiter string) grantlog.Grants {
	m.t.Helper()
	return m.at("{" + limiter + "}:permits")
}
