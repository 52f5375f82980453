// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"time"
)

// Functions of a redis client that belong to its user, such as CredentialsProviderContext and OnConnect, hold a connection of the
// pool while they run. Many return only when their context ends, if what they ask does not reply. A call of this module may not end
// with its caller, because others wait for its reply too, so its context ends after clientPatience.

const (
	// clientPatience is how long a function of a client may take. Those of most clients take far less than a second.
	clientPatience = 10 * time.Second
	// eraLasts is how long a context is given to calls that begin, so that few are made. A call may have so much longer.
	eraLasts = 2 * time.Second
)

// errPatience is the error of a context that has ended after clientPatience.
var errPatience = fmt.Errorf("a function of the redis client, such as CredentialsProvider or OnConnect, has not returned within %v", clientPatience)

// bound returns ctx, or if that never ends, one like it which ends after clientPatience or a little later. It has no deadline, since
// go-redis may apply that to replies. The argument d may be nil.
func (d *Dispatcher) bound(ctx context.Context) context.Context {
	if d == nil || ctx.Done() != nil {
		return ctx
	}
	e := d.era.Load()
	if e == nil {
		e = d.newEra()
	}
	if ctx == context.Background() {
		return e
	}
	return &bounded{ctx, e}
}

// newEra returns the era of the calls that begin now.
func (d *Dispatcher) newEra() *era {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.era.Load(); e != nil {
		return e
	}
	e := &era{Context: context.Background(), done: make(chan struct{})}
	d.era.Store(e)
	time.AfterFunc(eraLasts, func() {
		d.era.Store(nil)
		time.AfterFunc(clientPatience, func() { close(e.done) })
	})
	return e
}

// An era is the context of the calls that began within a time, if they had none that ends.
type era struct {
	context.Context
	done chan struct{}
}

// Done implements context.Context.
func (e *era) Done() <-chan struct{} { return e.done }

// Err implements context.Context.
func (e *era) Err() error {
	select {
	case <-e.done:
		return errPatience
	default:
		return nil
	}
}

// A bounded is a context that ends with an era.
type bounded struct {
	context.Context
	era *era
}

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.era.done }

// Err implements context.Context.
func (b *bounded) Err() error { return b.era.Err() }
