// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A bench is one run of the program: a server, the contestants on it, and the results.
type bench struct {
	options     options
	server      *server
	rdb         *redis.Client // for reading and seeding state, not for contestants
	rows        []row
	contestants []contestant
	costsInto   string // the document for the table of costs, or ""
	results     results
	serial      int // makes the names of limiters unique
}

func openBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o, results: results{}}
	for _, r := range allRows(o) {
		if o.rows.MatchString(r.about().key) {
			b.rows = append(b.rows, r)
		}
	}
	if len(b.rows) == 0 {
		return nil, fmt.Errorf("-rows %s matches no row", o.rows)
	}
	var err error
	if b.costsInto, err = b.costsDocument(); err != nil {
		return nil, err
	}
	if b.server, err = startServer(o.server); err != nil {
		return nil, err
	}
	b.rdb = newClient(b.server.Addr(), 0)
	if err := b.addContestants(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// goContestants returns the contestants that are Go code. Workers use it, too. Without the text of
// Redisson's script the baseline is missing.
func goContestants(addr string, pool int, script string) ([]contestant, error) {
	throttled, err := newThrottled(addr, pool)
	if err != nil {
		return nil, err
	}
	list := []contestant{newOurs(newClient(addr, pool), false), newOurs(newClient(addr, pool), true)}
	if script != "" {
		list = append(list, newRedissonScript(addr, pool, script))
	}
	auto, err := newAutoPipelined(newClient(addr, pool))
	if err != nil {
		return nil, err
	}
	onRueidis, err := newRueidis(addr, pool)
	if err != nil {
		return nil, err
	}
	floor, err := newLeast(addr, pool)
	if err != nil {
		return nil, err
	}
	list = append(list, newRedisRate(newClient(addr, pool)), auto, onRueidis, floor, throttled, local{},
		ping{newClient(addr, pool), 1}, ping{newClient(addr, pool), 100})
	return append(list, newLimits(addr, pool)...), nil
}

func (b *bench) wanted(key string) bool {
	return len(b.options.only) == 0 || slices.Contains(b.options.only, key)
}

// taken reports whether some row takes c.
func (b *bench) taken(c contestant) bool {
	return slices.ContainsFunc(b.rows, func(r row) bool { return r.takes(c) })
}

// needsRedisson reports whether Redisson's script takes part in a row. Profiles are of this library alone.
func (b *bench) needsRedisson() bool {
	return !b.options.profiling() && b.taken(&redissonScript{})
}

func (b *bench) addContestants(ctx context.Context) error {
	script := ""
	if b.needsRedisson() {
		b.say("starting real Redisson, to take its script from the wire")
		var err error
		if script, err = captureScript(ctx, b.options.server); err != nil {
			return fmt.Errorf("capturing Redisson's script: %w", err)
		}
	}
	list, err := goContestants(b.server.Addr(), b.options.pool, script)
	if err != nil {
		return err
	}
	known := []string{baselineKey}
	for _, c := range list {
		known = append(known, c.about().key)
		if b.wanted(c.about().key) && b.taken(c) && !(b.options.profiling() && c.about().limit) {
			b.contestants = append(b.contestants, c)
		}
	}
	for _, version := range []string{newestRedisson, olderRedisson} {
		known = append(known, "java-"+version)
		if !b.needsRedisson() || !b.wanted("java-"+version) || !b.taken(&redissonJava{version: version}) {
			continue
		}
		c, err := newRedissonJava(version, b.server.Addr())
		if err != nil {
			return err
		}
		b.contestants = append(b.contestants, c)
	}
	for _, key := range b.options.only {
		if !slices.Contains(known, key) {
			return fmt.Errorf("-only: there is no contestant %q", key)
		}
	}
	return nil
}

func (b *bench) close() {
	var errs []error
	for _, c := range b.contestants {
		errs = append(errs, c.close())
	}
	if err := errors.Join(errs...); err != nil {
		b.say("closing: %v", err)
	}
	_ = b.rdb.Close()
	b.server.stop()
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// measure runs every cell: in each repeat, in each row, each contestant in turn. Every other repeat has the
// opposite order, so that no contestant always runs after the same other one.
func (b *bench) measure(ctx context.Context) error {
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	order := slices.Clone(b.contestants)
	for repeat := range b.options.repeats {
		for _, r := range b.rows {
			for _, c := range order {
				if !r.takes(c) {
					continue
				}
				s, err := b.cell(ctx, r, c)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.about().key, c.about().key, err)
				}
				b.results.add(r.about().key, c.about().key, s)
				b.say("repeat %d/%d  %-16s %-16s %s", repeat+1, b.options.repeats, r.about().key, c.about().key, s)
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// cell measures one contestant in one row, on an empty server.
func (b *bench) cell(ctx context.Context, r row, c contestant) (sample, error) {
	if err := b.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	b.serial++
	return r.measure(ctx, b, c, fmt.Sprintf("bench.%d.", b.serial))
}

// warmUp fills connection pools and lets the JVMs compile what they will run.
func (b *bench) warmUp(ctx context.Context) error {
	for _, c := range b.contestants {
		d := b.options.duration / 4
		if c.about().java && !b.options.quick {
			d = 3 * time.Second
		}
		r := loadRow{callers: 64, limiters: 1, duration: d}
		if _, err := b.cell(ctx, r, c); err != nil {
			return fmt.Errorf("warming up %s: %w", c.about().key, err)
		}
	}
	return nil
}
