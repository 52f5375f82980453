// Command benchmarks measures this library beside what else limits rates in Redis: Redisson's own
// acquire script sent by plain go-redis (the baseline), real Redisson in Java, other Go limiters, and
// bare PINGs as the limit of the server. All of them share one redis-server, which the program starts
// and stops, and take turns: for each repeat, for each row, each contestant once.
//
// No figure counts unless the work behind it was done: what callers were granted is compared with what
// Redis holds afterwards, and a difference ends the program.
//
// Run prepare.sh first; `make bench` does both. The answer goes to docs/benchmarks.md and
// docs/benchmarks.svg.
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
