// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"hash/maphash"
	"time"
)

// maxHosts is how many hosts of one limiter a process holds individually. While that number is held, further hosts
// share sharedHolds holds by a hash of their names. So no hold ends early, however many hosts throttle.
const maxHosts, sharedHolds = 1024, 256

var hostSeed = maphash.MakeSeed()

// sharedHost returns the name of the hold that the host shares with others. No host has such a name.
func sharedHost(host string) string {
	return fmt.Sprint(" ", maphash.String(hostSeed, host)%sharedHolds)
}

// A hostHold makes requests to one host wait, if they spend a limiter that requests to other hosts spend too. It
// holds in this process alone. A limiter for each host would cost every request one more limiter in Redis, and would
// leave keys there for every host that is ever called. A rule gets such limiters with {host} in their name.
type hostHold struct {
	until time.Time
	back  backOff
}

// holdHost makes requests to the host wait until then, or for a back-off when until is zero, and returns the end. In a
// dry run nothing waits.
func (l *limiter) holdHost(host string, until, sent, now time.Time, cfg config) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		h = &hostHold{}
		if l.hosts == nil {
			l.hosts = map[string]*hostHold{}
		}
		if len(l.hosts) >= maxHosts {
			l.forgetHosts(now)
		}
		if len(l.hosts) >= maxHosts {
			l.sharing = true
			if host = sharedHost(host); l.hosts[host] != nil {
				h = l.hosts[host]
			}
		}
		l.hosts[host] = h
	}
	if until.IsZero() {
		until = h.back.next(sent, now, cfg)
	}
	if until.After(h.until) && !cfg.dryRun {
		h.until = until
	}
	return until
}

// forgetHosts forgets the holds that are over.
func (l *limiter) forgetHosts(now time.Time) {
	for host, h := range l.hosts {
		if !h.until.After(now) {
			delete(l.hosts, host)
		}
	}
}

// hostLeft returns how long requests to the host have to wait.
func (l *limiter) hostLeft(host string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left time.Duration
	if h := l.hosts[host]; h != nil {
		left = h.until.Sub(now)
	}
	if l.sharing {
		if h := l.hosts[sharedHost(host)]; h != nil {
			left = max(left, h.until.Sub(now))
		}
	}
	return left
}
