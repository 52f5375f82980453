package ratelimiter

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// proxy whose open connections can be made to RST at next use, or go mute.
type px struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	conns []*pc
}
type pc struct {
	c, s net.Conn
	mode int // 1: RST at next byte from the client, 2: swallow
	mu   sync.Mutex
}

func (p *px) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		x := &pc{c: c, s: s}
		p.mu.Lock()
		p.conns = append(p.conns, x)
		p.mu.Unlock()
		go func() { io.Copy(c, s) }()
		go func() {
			b := make([]byte, 65536)
			for {
				n, err := c.Read(b)
				if err != nil {
					s.Close()
					return
				}
				x.mu.Lock()
				m := x.mode
				x.mu.Unlock()
				switch m {
				case 1:
					c.(*net.TCPConn).SetLinger(0)
					c.Close()
					s.Close()
					return
				case 2:
					continue
				}
				s.Write(b[:n])
			}
		}()
	}
}
func (p *px) set(m int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.conns {
		x.mu.Lock()
		x.mode = m
		x.mu.Unlock()
	}
}

func TestZHalfThere(t *testing.T) {
	for _, mode := range []int{1, 2} {
		for _, n := range []int{1, 4, 12, 20, 60, 100} {
			for _, callers := range []int{1, 8} {
				for _, policy := range []OutagePolicy{FailClosed(), FailOpen()} {
					l, _ := net.Listen("tcp", "127.0.0.1:0")
					sl, _ := net.Listen("tcp", "127.0.0.1:0")
					port := sl.Addr().(*net.TCPAddr).Port
					sl.Close()
					cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--save", "")
					require.NoError(t, cmd.Start())
					p := &px{l: l, to: fmt.Sprintf("127.0.0.1:%d", port)}
					for {
						c, err := net.Dial("tcp", p.to)
						if err == nil {
							c.Close()
							break
						}
						time.Sleep(20 * time.Millisecond)
					}
					go p.serve()
					rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), PoolSize: 100, ReadTimeout: 2 * time.Second})
					events := 0
					c, err := New(rdb, WithOutagePolicy(policy), WithHook(Hook{Event: func(e Event) { events++; t.Log("EVENT", e.Kind, e.Err) }}))
					require.NoError(t, err)
					ctx := context.Background()
					lim := c.RateLimiter("x")
					lim.TrySetRate(ctx, Rate{Permits: 1000000, Interval: time.Second})
					_, err = lim.Allow(ctx, 1)
					require.NoError(t, err)
					var cs []*redis.Conn
					for range n {
						k := rdb.Conn()
						k.Ping(ctx)
						cs = append(cs, k)
					}
					for _, k := range cs {
						k.Close()
					}
					idle := rdb.PoolStats().IdleConns
					p.set(mode)
					begin := time.Now()
					var wg sync.WaitGroup
					var mu sync.Mutex
					errs, degraded := 0, 0
					var slowest time.Duration
					for range callers {
						wg.Go(func() {
							for range 5 {
								b := time.Now()
								r, err := lim.Allow(ctx, 1)
								mu.Lock()
								if err != nil {
									errs++
									t.Log(err)
								}
								if r.Degraded {
									degraded++
								}
								slowest = max(slowest, time.Since(b))
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					fmt.Printf("mode %d idle %d callers %d policy %v: done %v slowest %v errs %d degraded %d events %d\n", mode, idle, callers, policy, time.Since(begin).Round(time.Millisecond), slowest.Round(time.Millisecond), errs, degraded, events)
					c.Close()
					rdb.Close()
					l.Close()
					cmd.Process.Kill()
					cmd.Wait()
				}
			}
		}
	}
}
