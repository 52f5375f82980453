package httplimit

import "time"

// maxHosts bounds how many hosts of one limiter a process remembers.
const maxHosts = 256

// A hostHold makes the requests to one host wait that spend a limiter which requests to other hosts spend too. It holds in
// this process alone: a limiter for each host would cost every request another limiter in Redis, and Redis the keys of
// every host that is ever called. A rule has such limiters with {host} in their name.
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
			l.forgetHost(now)
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

// forgetHost forgets the holds that are over or, when none is, the one that ends first.
func (l *limiter) forgetHost(now time.Time) {
	first := ""
	for host, h := range l.hosts {
		if !h.until.After(now) {
			delete(l.hosts, host)
		} else if first == "" || h.until.Before(l.hosts[first].until) {
			first = host
		}
	}
	if len(l.hosts) >= maxHosts {
		delete(l.hosts, first)
	}
}

// hostLeft returns how long requests to the host have to wait.
func (l *limiter) hostLeft(host string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[host]; h != nil {
		return h.until.Sub(now)
	}
	return 0
}
