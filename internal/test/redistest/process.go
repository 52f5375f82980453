// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// startTimeout bounds a start, including the loading of an append-only file.
const startTimeout = 20 * time.Second

// A process is one run of a server program.
type process struct {
	cmd    *exec.Cmd
	log    *Log
	exited chan struct{}
}

// startProcess starts bin and returns when it serves addr.
func startProcess(bin string, args []string, addr string) (*process, error) {
	p := &process{cmd: exec.Command(bin, args...), log: new(Log), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	deadline := time.Now().Add(startTimeout)
	for {
		err := p.ping(addr)
		if err == nil {
			return p, nil
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended at its start:\n%s", bin, p.log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = p.end(os.Kill)
			return nil, fmt.Errorf("%s does not answer PING on %s: %w\n%s", bin, addr, err, p.log)
		}
	}
}

// ping sends PING to addr. It checks the process id, because another server may have taken the port first.
func (p *process) ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	pong, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(pong, "-NOAUTH") {
		return nil // it wants a password, so it is up
	}
	if !strings.HasPrefix(pong, "+PONG") {
		return errors.New(strings.TrimSpace(pong)) // usually LOADING
	}
	info, _ := io.ReadAll(r)
	if !bytes.Contains(info, fmt.Appendf(nil, "process_id:%d\r\n", p.cmd.Process.Pid)) {
		return errors.New("another server answers there")
	}
	return nil
}

// end sends sig, kills a process that does not end within five seconds, and returns when the process is gone.
func (p *process) end(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return nil
}

// FreePort returns a port on which nothing listens, nor on the port 10000 above it, where a cluster node has its bus.
// Both are below 32768, where Linux begins to give ports to outgoing connections: a client that keeps dialling a dead
// server in that range can end up connected to itself, and then holds the port when the server restarts.
func FreePort() int {
	for {
		port := 12000 + rand.IntN(10000)
		if free(port) && free(port+10000) {
			return port
		}
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
