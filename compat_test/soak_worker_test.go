package compat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
)

// soakPlanEnv holds, in the environment of a process of this test binary, what it is to do as a worker.
const soakPlanEnv = "RATELIMITER_SOAK_PLAN"

// A soakPlan is the load of one Go process. On each limiter one goroutine a mode is at work.
type soakPlan struct {
	Addr     string
	Limiters []string
	Mix      []int64
	Modes    []string // try, wait:DURATION, block
	Pause    time.Duration
	During   time.Duration
}

// A soakTally is what its callers were told on one limiter.
type soakTally struct {
	Granted, Permits, Refused int64
	Faults, Errors            map[string]int64
}

// soakWorker makes this process a worker if it was started as one: it never returns then.
func soakWorker() {
	text, ok := os.LookupEnv(soakPlanEnv)
	if !ok {
		return
	}
	var plan soakPlan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		os.Exit(2)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(3)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(4) // whoever started this is gone
	}()
	if err := json.NewEncoder(os.Stdout).Encode(plan.run()); err != nil {
		os.Exit(5)
	}
	os.Exit(0)
}

// run ends each goroutine after its last call, which it never breaks off: a permit granted to a call
// that is cancelled would be nobody's.
func (p soakPlan) run() map[string]*soakTally {
	client := ratelimiter.New(redis.NewClient(&redis.Options{Addr: p.Addr}))
	tallies := map[string]*soakTally{}
	var mu sync.Mutex
	var running sync.WaitGroup
	end := time.Now().Add(p.During)
	for _, name := range p.Limiters {
		tally := &soakTally{Faults: map[string]int64{}, Errors: map[string]int64{}}
		tallies[name] = tally
		for _, mode := range p.Modes {
			running.Go(func() {
				limiter := client.RateLimiter(name)
				for time.Now().Before(end) {
					n := p.Mix[rand.N(len(p.Mix))]
					ok, err := soakAsk(limiter, n, mode)
					mu.Lock()
					switch {
					case err != nil && isFault(err):
						tally.Faults[err.Error()]++
					case err != nil:
						tally.Errors[err.Error()]++
					case ok:
						tally.Granted++
						tally.Permits += n
					default:
						tally.Refused++
					}
					mu.Unlock()
					if !ok {
						time.Sleep(p.Pause)
					}
				}
			})
		}
	}
	running.Wait()
	return tallies
}

func soakAsk(limiter *ratelimiter.RateLimiter, n int64, mode string) (bool, error) {
	ctx := context.Background()
	if mode == "block" {
		err := limiter.Acquire(ctx, n)
		return err == nil, err
	}
	timeout, _ := strings.CutPrefix(mode, "wait:")
	d, _ := time.ParseDuration(timeout)
	return limiter.TryAcquire(ctx, n, d)
}

// isFault: what a caller may see while Redis is away, and at no other time.
func isFault(err error) bool {
	return errors.Is(err, ratelimiter.ErrUnavailable)
}

// A soaker is a worker as the test sees it.
type soaker struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

func startSoaker(t testing.TB, plan soakPlan) *soaker {
	t.Helper()
	text, err := json.Marshal(plan)
	require.NoError(t, err)
	s := &soaker{t: t, cmd: exec.Command(os.Args[0])}
	s.cmd.Env = append(os.Environ(), soakPlanEnv+"="+string(text))
	s.cmd.Stderr = os.Stderr
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.kill)
	s.lines = bufio.NewReader(stdout)
	line, err := s.lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return s
}

func (s *soaker) begin() {
	s.t.Helper()
	_, err := io.WriteString(s.stdin, "go\n")
	require.NoError(s.t, err)
}

// tallies waits for the worker's end.
func (s *soaker) tallies() (map[string]*soakTally, error) {
	out := map[string]*soakTally{}
	if err := json.NewDecoder(s.lines).Decode(&out); err != nil {
		return nil, err
	}
	return out, s.cmd.Wait()
}

// kill ends the worker as a crash would.
func (s *soaker) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}
