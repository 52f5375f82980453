// SPDX-License-Identifier: Apache-2.0

// Package guard contains the panics of functions that a user of this module supplied.
package guard

import (
	"fmt"
	"runtime/debug"
)

// A PanicError is a panic of a function that the user of a package supplied, turned into an error.
type PanicError struct {
	// Func is what panicked, such as "Limit.Key".
	Func string
	// Value is what it panicked with.
	Value any
	// Stack is the stack of the goroutine at that moment, as debug.Stack formats it.
	Stack []byte
}

// Error returns the function and the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.Func, e.Value) }

// Unwrap returns the value when it is an error, otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// New returns a PanicError for value, which recover returned in a function that fn deferred.
func New(fn string, value any) *PanicError {
	return &PanicError{Func: fn, Value: value, Stack: debug.Stack()}
}

// Call calls f and returns its panic, or nil when it returned.
func Call(fn string, f func()) (p *PanicError) {
	defer func() {
		if v := recover(); v != nil {
			p = New(fn, v)
		}
	}()
	f()
	return nil
}
