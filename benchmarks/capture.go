// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// captureScript runs real Redisson once, on a separate server behind a recording proxy, and returns the
// acquire script that it sent. This repository holds no copy of Redisson's scripts.
func captureScript(ctx context.Context, program string) (string, error) {
	s, err := startServer(program)
	if err != nil {
		return "", err
	}
	defer s.stop()
	proxy, err := redistest.NewProxy(s.Addr())
	if err != nil {
		return "", err
	}
	defer proxy.Close()
	r := &recorder{}
	proxy.Judge(r.record)
	const name, permits = "captured", 3
	rdb := newClient(s.Addr(), 1)
	defer rdb.Close()
	if err := writeRates(ctx, rdb, job{prefix: name, limiters: 1, permits: 7, interval: time.Minute}); err != nil {
		return "", err
	}
	j, err := startJava(newestRedisson, proxy.Addr())
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

// A recorder records what clients send through a proxy in front of a Redis.
type recorder struct {
	mu       sync.Mutex
	commands [][]string
}

func (r *recorder) record(words []string) redistest.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = append(r.commands, words)
	return redistest.Fault{}
}

// script returns the script that ran on a limiter; Redisson runs another one when it connects. The script
// may have been loaded first and then sent by its digest.
func (r *recorder) script(name string) (text string, keys, args []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[string]string{}
	for _, c := range r.commands {
		found := ""
		switch strings.ToUpper(c[0]) {
		case "SCRIPT":
			if len(c) == 3 && strings.EqualFold(c[1], "LOAD") {
				texts[redis.NewScript(c[2]).Hash()] = c[2]
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
