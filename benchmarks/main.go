// SPDX-License-Identifier: Apache-2.0

// Command benchmarks compares this library with other rate limiters in Redis: Redisson's own acquire
// script sent by plain go-redis (the baseline), real Redisson in Java, and other Go limiters. Bare PINGs
// show the limit of the server. All of them share one redis-server, which the program starts and stops,
// and take turns: in each repeat, each contestant runs once in each row. The row about a cluster starts one of its own.
//
// Every figure is checked: what callers were granted is compared with what Redis holds afterwards, and a
// difference ends the program.
//
// Run prepare.sh first; `make bench` does both. The program writes docs/benchmarks-run.md and
// docs/benchmarks-run.svg.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if os.Getenv(workerVariable) != "" {
		if err := work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks: worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	b, err := openBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	if o.profiling() {
		return b.profile(ctx)
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.write(ctx)
}
