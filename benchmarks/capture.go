package main

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA's, not ours
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// captureScript runs real Redisson once, on a server of its own behind a recording proxy, and answers
// the acquire script that it sent. No text of Redisson's is kept in this repository.
func captureScript(ctx context.Context, program string) (string, error) {
	s, err := startServer(ctx, program)
	if err != nil {
		return "", err
	}
	defer s.stop()
	r, err := startRecorder(s.addr)
	if err != nil {
		return "", err
	}
	defer r.listener.Close()
	const name, permits = "captured", 3
	rdb := newClient(s.addr, 1)
	defer rdb.Close()
	if err := writeRates(ctx, rdb, job{prefix: name, limiters: 1, permits: 7, interval: time.Minute}); err != nil {
		return "", err
	}
	j, err := startJava(newestRedisson, r.listener.Addr().String())
	if err != nil {
		return "", err
	}
	answer, err := j.ask(fmt.Sprintf("try %d %s", permits, name))
	if err := errors.Join(err, j.close()); err != nil {
		return "", err
	}
	if answer != "true" {
		return "", fmt.Errorf("tryAcquire in Java answered %q", answer)
	}
	text, keys, args, err := r.script(name)
	if err != nil {
		return "", err
	}
	return text, checkLayout(name, permits, keys, args)
}

// A recorder is a proxy before a Redis that keeps what clients send.
type recorder struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	commands [][]string
}

func startRecorder(target string) (*recorder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{listener: l, target: target}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(client)
		}
	}()
	return r, nil
}

func (r *recorder) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	in := bufio.NewReader(io.TeeReader(client, server))
	for {
		words, err := readCommand(in)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.commands = append(r.commands, words)
		r.mu.Unlock()
	}
}

// readCommand reads an array of bulk strings, the only form in which Redisson sends commands.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readHeader(in, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := readHeader(in, '$')
		if err != nil {
			return nil, err
		}
		bulk := make([]byte, size+2)
		if _, err := io.ReadFull(in, bulk); err != nil {
			return nil, err
		}
		words[i] = string(bulk[:size])
	}
	return words, nil
}

func readHeader(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q where %q was expected", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// script is the script that ran on a limiter; Redisson runs another one when it connects. A text may
// have been loaded first and sent by its digest.
func (r *recorder) script(name string) (text string, keys, args []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[string]string{}
	for _, c := range r.commands {
		found := ""
		switch strings.ToUpper(c[0]) {
		case "SCRIPT":
			if len(c) == 3 && strings.EqualFold(c[1], "LOAD") {
				sum := sha1.Sum([]byte(c[2])) //nolint:gosec // as above
				texts[hex.EncodeToString(sum[:])] = c[2]
			}
		case "EVAL":
			found = c[1]
		case "EVALSHA":
			found = texts[c[1]]
		}
		if found == "" || len(c) < 4 || c[3] != name {
			continue
		}
		if text != "" && text != found {
			return "", nil, nil, errors.New("redisson ran more than one script")
		}
		n, err := strconv.Atoi(c[2])
		if err != nil {
			return "", nil, nil, err
		}
		text, keys, args = found, c[3:3+n], c[3+n:]
	}
	if text == "" {
		return "", nil, nil, errors.New("redisson ran no script")
	}
	return text, keys, args, nil
}
