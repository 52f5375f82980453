// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profile runs this library alone and writes the profiles that the flags name.
func (b *bench) profile(ctx context.Context) (err error) {
	o := b.options
	var c contestant
	for _, other := range b.contestants {
		if other.about().key == oursKey {
			c = other
		}
	}
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	if o.mutexProfile != "" {
		runtime.SetMutexProfileFraction(1)
	}
	if o.blockProfile != "" {
		runtime.SetBlockProfileRate(1)
	}
	if o.cpuProfile != "" {
		f, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
	}
	s, err := b.cell(ctx, loadRow{callers: o.callers, limiters: 1, duration: o.duration}, c)
	pprof.StopCPUProfile()
	b.say("%d callers: %s", o.callers, s)
	return errors.Join(err, writeProfile("mutex", o.mutexProfile), writeProfile("block", o.blockProfile))
}

func writeProfile(name, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}
