// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/internal/test/limittest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/goredisson/ratelimiter/limit"
)

const (
	guavaClassPaths = "java/guava/target/classpath" // one file for each version, written by prepare.sh
	guavaClasses    = "java/guava/target/classes"
	guavaLimit      = 5 * time.Minute
)

// The calls of both sides, by their names in java/guava.
const (
	guavaAcquire    = "acquire"    // Guava's acquire(n), our Wait
	guavaTryAcquire = "tryAcquire" // Guava's tryAcquire(n, timeout), our WaitTimeout
	guavaReserve    = "reserve"    // Guava's reserve(n), which is acquire without its sleep; our Reserve
	guavaTryReserve = "tryReserve" // Guava's tryAcquire in a thread that sleeps; our Reserve or Allow
)

// guavaPatience is the longest wait of a reserve, which is the longest that our Reserve allows.
const guavaPatience = 365 * 24 * time.Hour

// guavaNever is longer than any play. It ends a wait that goes wrong.
const guavaNever = 20 * guavaPatience

// A guavaAsk is one request, made a gap after the one before it has returned.
type guavaAsk struct {
	gap     time.Duration
	call    string
	permits int64
	timeout time.Duration // for the two calls that try
}

func (a guavaAsk) String() string {
	if a.call == guavaTryAcquire || a.call == guavaTryReserve {
		return fmt.Sprintf("after %v %s(%d, %v)", a.gap, a.call, a.permits, a.timeout)
	}
	return fmt.Sprintf("after %v %s(%d)", a.gap, a.call, a.permits)
}

// A guavaAnswer is the result of a request. The wait of a grant is the time until it may be used. The wait of a
// rejection is how much longer the timeout would have had to be. A tryAcquire does not tell that: there it is the time
// that the call took.
type guavaAnswer struct {
	granted bool
	wait    time.Duration
}

func (a guavaAnswer) String() string {
	if a.granted {
		return fmt.Sprintf("granted, wait %v", a.wait)
	}
	return fmt.Sprintf("rejected, short of %v", a.wait)
}

// A guavaPlay is a series of requests to one limiter, from its creation on, and what our limiters reply.
type guavaPlay struct {
	algorithm     limit.Algorithm
	asks          []guavaAsk
	local, shared []guavaAnswer
	both          bool // it is played to a shared limiter, too
	replay        string
}

// ours makes the request to a limiter of package limit, in a bubble.
func (a guavaAsk) ours(ctx context.Context, l limittest.Reserver) (guavaAnswer, error) {
	time.Sleep(a.gap)
	begin := time.Now()
	var r ratelimiter.Result
	var err error
	switch {
	case a.call == guavaAcquire:
		err = limit.Wait(ctx, l, a.permits)
		return guavaAnswer{true, time.Since(begin)}, err
	case a.call == guavaTryAcquire:
		r.Granted, err = limit.WaitTimeout(ctx, l, a.permits, a.timeout)
		return guavaAnswer{r.Granted, time.Since(begin)}, err
	case a.call == guavaReserve:
		r, err = l.Reserve(ctx, a.permits, guavaPatience)
	case a.timeout <= 0:
		r, err = l.Allow(ctx, a.permits)
	default:
		r, err = l.Reserve(ctx, a.permits, a.timeout)
	}
	return guavaAnswer{r.Granted, r.Wait}, err
}

func (p guavaPlay) ours(ctx context.Context, l limittest.Reserver) ([]guavaAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, guavaNever)
	defer cancel()
	var out []guavaAnswer
	for i, a := range p.asks {
		answer, err := a.ours(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("%+v, request %d, %v: %w", p.algorithm, i, a, err)
		}
		out = append(out, answer)
	}
	return out, nil
}

// A guavaJar is one version of Guava, with its class path.
type guavaJar struct {
	version string
	jars    []string
}

// guavaJars returns the versions of Guava that prepare.sh fetched, oldest first. It fails t if there are none.
func guavaJars(t *testing.T) []guavaJar {
	t.Helper()
	files := redistest.Must(filepath.Glob(filepath.Join(guavaClassPaths, "*")))(t)
	require.GreaterOrEqual(t, len(files), 2, "no class paths of Guava: run compat_test/prepare.sh")
	var out []guavaJar
	for _, file := range files {
		text := redistest.Must(os.ReadFile(file))(t)
		out = append(out, guavaJar{filepath.Base(file), strings.Fields(string(text))})
	}
	slices.SortFunc(out, func(a, b guavaJar) int { return compareVersions(a.version, b.version) })
	return out
}

// say runs a JVM with these lines as its input, and returns its replies.
func (j guavaJar) say(t *testing.T, lines string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guavaLimit)
	defer cancel()
	args := append(slices.Clone(javaOptions), "-cp", guavaClasses+":"+strings.Join(j.jars, ":"),
		"com.google.common.util.concurrent.GuavaPeer")
	cmd := exec.CommandContext(ctx, "java", args...)
	var stdout bytes.Buffer
	stderr := new(redistest.Log)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(lines), &stdout, stderr
	require.NoError(t, cmd.Run(), "Guava %s: %s", j.version, stderr)
	answers := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
	require.Equal(t, "guava "+j.version, answers[0])
	require.Len(t, answers, 1+strings.Count(lines, "\n"), "Guava %s: an answer a line", j.version)
	return answers[1:]
}

// play returns Guava's replies to the requests of each play.
func (j guavaJar) play(t *testing.T, plays []guavaPlay) [][]guavaAnswer {
	t.Helper()
	var lines strings.Builder
	for _, p := range plays {
		lines.WriteString(guavaMaking(p.algorithm))
		for _, a := range p.asks {
			fmt.Fprintf(&lines, "%d %s %d", a.gap.Microseconds(), a.call, a.permits)
			if a.call == guavaTryAcquire || a.call == guavaTryReserve {
				fmt.Fprintf(&lines, " %d", a.timeout.Microseconds())
			}
			lines.WriteByte('\n')
		}
	}
	answers := j.say(t, lines.String())
	var out [][]guavaAnswer
	for _, p := range plays {
		require.Equal(t, "made", answers[0])
		answers = answers[1:]
		var played []guavaAnswer
		for i, a := range p.asks {
			answer, err := parseGuava(a, answers[i])
			require.NoError(t, err, "Guava %s: %v: %q", j.version, a, answers[i])
			played = append(played, answer)
		}
		out, answers = append(out, played), answers[len(p.asks):]
	}
	return out
}

// guavaMaking returns the line that creates Guava's limiter with the same numbers. A burst is written as the decimal
// that a Java program would have.
func guavaMaking(algorithm limit.Algorithm) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	switch a := algorithm.(type) {
	case limit.SmoothBursty:
		us := a.MaxBurst.Microseconds()
		return fmt.Sprintf("bursty %s %d.%06d\n", number(a.PermitsPerSecond), us/1e6, us%1e6)
	case limit.SmoothWarmingUp:
		cold := a.ColdFactor
		if cold == 0 {
			cold = 3
		}
		return fmt.Sprintf("warmingUp %s %d %s\n", number(a.PermitsPerSecond), a.Warmup.Microseconds(), number(cold))
	}
	panic(fmt.Sprintf("%T is none of Guava's", algorithm))
}

func parseGuava(a guavaAsk, line string) (guavaAnswer, error) {
	words := strings.Split(line, " ")
	if len(words) < 2 || (a.call == guavaAcquire) != (len(words) == 3) || words[0] != "granted" && words[0] != "rejected" {
		return guavaAnswer{}, fmt.Errorf("no answer")
	}
	us, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return guavaAnswer{}, err
	}
	if a.call == guavaAcquire {
		// acquire returns its sleep in seconds as a double, which is the same number.
		seconds, err := strconv.ParseFloat(words[2], 64)
		if err != nil || seconds != float64(us)/1e6 {
			return guavaAnswer{}, fmt.Errorf("acquire slept %d µs and returned %s", us, words[2])
		}
	}
	answer := guavaAnswer{words[0] == "granted", time.Duration(us) * time.Microsecond}
	if a.call == guavaTryAcquire && !answer.granted {
		answer.wait = 0
	}
	return answer, nil
}
