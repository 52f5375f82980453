// SPDX-License-Identifier: Apache-2.0

// Command gate is a gateway that limits and bans as DingTalk's does, for the example beside it:
//
//	go run ./examples/dingtalk/gate
//
// With -ban 3s it bans the address of the tenth call for 3 s, as if others behind that address had called too often; DingTalk bans for
// five minutes. It serves until Ctrl-C, and then counts the calls and the penalties. It is no part of what is to be copied.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/dinggate"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8090", "where it listens")
	minute := flag.Duration("minute", 5*time.Second, "how long the minute of a robot is")
	ban := flag.Duration("ban", 0, "how long the address of the tenth call is banned; 0 for no ban")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *minute, *ban, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends.
func serve(ctx context.Context, addr string, minute, ban time.Duration, out io.Writer) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	limits := dinggate.Standard()
	limits[dinggate.DimRobot].Window = minute
	gate := dinggate.New(limits)
	srv := &http.Server{Handler: banned(gate, ban), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Fprintf(out, "go run ./examples/dingtalk -url http://%s -minute %v -ban %v\n", ln.Addr(), minute, cmp.Or(ban, limits[dinggate.DimIP].Penalty))
	if err := srv.Serve(ln); ctx.Err() == nil {
		return err
	}
	c := gate.Ledger().Total
	fmt.Fprintf(out, "calls %d, penalties %d, calls during penalties %d\n", c.Calls, c.Penalties, c.During)
	return nil
}

// banned returns the gate, which bans the address of the tenth call first.
func banned(gate *dinggate.Gate, ban time.Duration) http.Handler {
	var calls atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 10 && ban > 0 {
			if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
				_ = gate.Ban(dinggate.DimIP, host, ban)
			}
		}
		gate.ServeHTTP(w, r)
	})
}
