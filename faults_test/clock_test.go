// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goredisson/ratelimiter/internal/test/grantlog"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
)

// A clocked is a server whose clock the row sets. The offset lies in a file that the server has mapped.
type clocked struct {
	*redistest.Server
	f      *fault
	offset *os.File
}

// startClocked starts a server with clock/clock.c preloaded. (libfaketime hangs in the allocator of redis-server.)
func startClocked(f *fault) *clocked {
	f.Helper()
	dir := f.TempDir()
	library, file, script := filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset"), filepath.Join(dir, "server")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, "clock/clock.c").CombinedOutput()
	require.NoError(f, err, "the clock needs a C compiler, gcc or clang: %s", out)
	require.NoError(f, os.WriteFile(file, make([]byte, 8), 0o600))
	require.NoError(f, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nLD_PRELOAD=%s FAULTS_CLOCK=%s exec %s-server \"$@\"\n", library, file, redistest.Lane()), 0o700))
	s := redistest.Must(redistest.NewServer(script, dir))(f)
	f.Cleanup(s.Close)
	offset := redistest.Must(os.OpenFile(file, os.O_RDWR, 0))(f)
	f.Cleanup(func() { _ = offset.Close() })
	return &clocked{s, f, offset}
}

// step sets the clock to what it should be plus d, for TIME in scripts too.
func (c *clocked) step(d time.Duration) {
	c.f.Helper()
	redistest.Must(c.offset.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0))(c.f)
	now := redistest.Must(admin(c.f, c.Server).Eval(c.f.Context(), "return redis.call('TIME')[1]", nil).Int64())(c.f)
	require.InDelta(c.f, time.Now().Add(d).Unix(), now, 5, "the server's clock does not follow")
}

// stepped sets the server's clock by d under load. With again, the window across the step may hold the rate once more.
func stepped(d time.Duration, again bool) func(f *fault) {
	return func(f *fault) {
		const permits, interval = 20, time.Second
		s := startClocked(f)
		a := newFleet(f, at(s.Addr()))
		a.set("clock", rate(permits, interval))
		tried, waited := a.tries("clock", 2, 3*time.Millisecond), a.waits("clock", 2, 0)
		time.Sleep(2500 * time.Millisecond)
		step := time.Now()
		s.step(d)
		done := time.Now()
		time.Sleep(5 * time.Second)
		until := time.Now()
		both := append(tried.Told().Grants, waited.Told().Grants...)
		a.end()
		most, later := fullest(both, interval), fullest(both.After(done), interval)
		gap := both.Gap(step, until)
		total := both.After(done).Permits()
		f.measured("fullest window of %v: %d across the change, %d after it, at rate %d; longest time without a grant %v; %d granted in the 5 s after it",
			interval, most, later, permits, round(gap), total)
		allowed := int64(permits)
		if again {
			allowed *= 2
		}
		require.LessOrEqual(f, most, allowed)
		require.LessOrEqual(f, later, int64(permits))
		for _, b := range []*grantlog.Ledger{tried, waited} {
			requireTyped(f, b, true)
		}
		f.within("the time without a grant", step, gap, interval)
	}
}
