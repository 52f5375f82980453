// SPDX-License-Identifier: Apache-2.0

package compat_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

const (
	// Only a hang reaches these limits, on however busy a machine. A JVM starts in about a second.
	startLimit = 3 * time.Minute
	callLimit  = 2 * time.Minute
	stopLimit  = time.Minute
)

// javaOptions keep a peer small and its start short.
var javaOptions = []string{
	"-Xmx128m", "-Xss256k", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
	"--add-opens", "java.base/java.lang=ALL-UNNAMED",
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dio.netty.noPreferDirect=true",
}

// A peer is one JVM with one Redisson client. Its methods may be called from several goroutines, and such calls
// overlap in the JVM as well.
type peer struct {
	version version
	id      string // of the Redisson client
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  *redistest.Log
	done    chan struct{} // closed when stdout has ended

	mu     sync.Mutex
	next   int
	flying map[string]*pending
}

// A javaError is an exception that Redisson threw.
type javaError struct {
	Class   string // without its package
	Message string
}

func (e *javaError) Error() string { return e.Class + ": " + e.Message }

// unsupported reports whether err is the peer's reply to an operation that the version lacks.
func unsupported(err error) bool {
	var e *javaError
	return errors.As(err, &e) && e.Class == "UnsupportedOperationException"
}

// startPeer runs a JVM until the test ends. addr is host:port. The options are those of the peer.
func startPeer(t testing.TB, v version, addr string, options ...string) *peer {
	t.Helper()
	p := redistest.Must(newPeer(v, addr, options...))(t)
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("Redisson %s: %v", v, err)
		}
	})
	return p
}

func newPeer(v version, addr string, options ...string) (*peer, error) {
	args := append([]string{}, javaOptions...)
	args = append(args, "-cp", classes+":"+strings.Join(v.jars, ":"), "peer.Peer", "--address", "redis://"+addr)
	p := &peer{
		version: v, cmd: exec.Command("java", append(args, options...)...),
		stderr: new(redistest.Log), done: make(chan struct{}), flying: map[string]*pending{},
	}
	p.cmd.Stderr = p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	greeting := make(chan string, 1)
	go p.read(bufio.NewReaderSize(stdout, 1<<20), greeting)
	select {
	case line := <-greeting:
		words := strings.Split(line, " ")
		if words[0] == "ready" && len(words) == 3 && words[1] == v.name {
			p.id = words[2]
			return p, nil
		}
		err = fmt.Errorf("Redisson %s greets with %q", v, line)
	case <-time.After(startLimit):
		err = fmt.Errorf("Redisson %s: no greeting within %v", v, startLimit)
	}
	p.kill()
	return nil, fmt.Errorf("%w\n%s", err, p.stderr)
}

// read delivers the replies to their calls until stdout ends.
func (p *peer) read(stdout *bufio.Reader, greeting chan<- string) {
	defer close(p.done)
	for first := true; ; first = false {
		line, err := stdout.ReadString('\n')
		if err != nil {
			if first {
				greeting <- ""
			}
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if first {
			greeting <- line
			continue
		}
		id, answer, _ := strings.Cut(line, " ")
		p.mu.Lock()
		call := p.flying[id]
		delete(p.flying, id)
		p.mu.Unlock()
		if call == nil {
			fmt.Fprintf(p.stderr, "harness: answer to no request: %q\n", line)
			continue
		}
		call.answer <- answer
	}
}

// A pending is an operation in flight.
type pending struct {
	peer   *peer
	id     string
	line   string
	answer chan string
}

// begin sends an operation and returns at once.
func (p *peer) begin(operation string, args ...any) *pending {
	p.mu.Lock()
	p.next++
	call := &pending{peer: p, id: strconv.Itoa(p.next), answer: make(chan string, 1)}
	p.flying[call.id] = call
	words := []string{operation}
	for _, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			arg = d.Milliseconds()
		}
		words = append(words, escape(fmt.Sprint(arg)))
	}
	call.line = strings.Join(words, " ")
	_, err := io.WriteString(p.stdin, call.id+" "+call.line+"\n")
	p.mu.Unlock()
	if err != nil {
		call.answer <- "!harness.StdinClosed " + escape(err.Error())
	}
	return call
}

// wait returns the reply. An exception is returned as a *javaError.
func (c *pending) wait(limit time.Duration) (string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var answer string
	select {
	case answer = <-c.answer:
	case <-c.peer.done:
		select {
		case answer = <-c.answer: // the reply was the last line
		default:
			return "", fmt.Errorf("Redisson %s ended during %s\n%s", c.peer.version, c.line, c.peer.stderr)
		}
	case <-timer.C:
		return "", fmt.Errorf("Redisson %s: %s: no answer within %v\n%s", c.peer.version, c.line, limit, c.peer.stderr)
	}
	if value, ok := strings.CutPrefix(answer, "="); ok {
		return unescape(value), nil
	}
	class, message, _ := strings.Cut(strings.TrimPrefix(answer, "!"), " ")
	// The rest is the whole command with its script, which contains the texts of other errors.
	message, _, _ = strings.Cut(unescape(message), " channel: [")
	return "", &javaError{Class: class[strings.LastIndexByte(class, '.')+1:], Message: message}
}

// running reports whether the reply has not arrived yet.
func (c *pending) running() bool { return len(c.answer) == 0 }

// cancel interrupts the operation, or cancels the future of an Async one. The operation still sends its own reply.
func (c *pending) cancel() (bool, error) {
	value, err := c.peer.call("cancel", c.id)
	return value == "true", err
}

// call sends an operation and waits for its reply.
func (p *peer) call(operation string, args ...any) (string, error) {
	return p.begin(operation, args...).wait(callLimit)
}

// must calls an operation that is expected to succeed, and returns its reply.
func (p *peer) must(t testing.TB, operation string, args ...any) string {
	t.Helper()
	value, err := p.call(operation, args...)
	require.NoError(t, err, "Redisson %s: %s %v", p.version, operation, args)
	return value
}

// truth does what must does, for an operation that returns a boolean.
func (p *peer) truth(t testing.TB, operation string, args ...any) bool {
	t.Helper()
	value := redistest.Must(strconv.ParseBool(p.must(t, operation, args...)))(t)
	return value
}

// number does what must does, for an operation that returns a number.
func (p *peer) number(t testing.TB, operation string, args ...any) int64 {
	t.Helper()
	value := redistest.Must(strconv.ParseInt(p.must(t, operation, args...), 10, 64))(t)
	return value
}

func (p *peer) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop closes stdin, which shuts the client down, and waits for the process.
func (p *peer) stop() error {
	p.mu.Lock()
	_ = p.stdin.Close()
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		p.kill()
		return fmt.Errorf("did not end within %v of its stdin\n%s", stopLimit, p.stderr)
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.stderr)
	}
	return nil
}

// kill ends the JVM as a crash would.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait()
}

// escape and unescape use the peer's escapes; see java/src/main/java/peer/Peer.java.
func escape(text string) string {
	if text == "" {
		return "%"
	}
	return url.QueryEscape(text)
}

func unescape(word string) string {
	if word == "%" {
		return ""
	}
	text, err := url.QueryUnescape(word)
	if err != nil {
		return word
	}
	return text
}

// javaFault matches what Redisson's callers may see while Redis is down.
var javaFault = regexp.MustCompile(`Redis(Connection|Timeout|ResponseTimeout|NodeNotFound|Loading|Retry)Exception|LOADING|ClosedChannel`)

// told waits for the reply to a hammer. When a thread made its request is not known, only when it got the permits.
func (c *pending) told(limit time.Duration) (told grantlog.Told, err error) {
	text, err := c.wait(limit)
	if err != nil {
		return told, err
	}
	var reply struct {
		Rejected int
		Errors   map[string]int // by their texts
		Grants   [][2]int64     // the clock of the JVM after the reply, in ms, and the permits
	}
	err = json.Unmarshal([]byte(text), &reply)
	told.Rejected, told.Errors, told.Unavailable = reply.Rejected, map[string]int{}, map[string]int{}
	for _, g := range reply.Grants {
		told.Grants = append(told.Grants, grantlog.Grant{End: time.UnixMilli(g[0]), Permits: g[1]})
	}
	for text, n := range reply.Errors {
		if javaFault.MatchString(text) {
			told.Unavailable[text[:min(len(text), 80)]] += n
		} else {
			told.Errors[text] += n
		}
	}
	return told, err
}

// forgetsCallers reports whether each rejection of a blocked acquire adds a link to a chain of futures, until the chain
// is too long for the stack of the thread that completes it. Then the permits are spent and the caller is never told
// (Redisson's issue 6959; 4.3.0 waits in a loop). Of the matrix these versions are 3.20.1, 3.34.1 and 3.52.0; earlier
// ones have no such chain.
func forgetsCallers(v version) bool { return v.since("3.17.0") && !v.since("4.3.0") }
