// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/goredisson/ratelimiter"
)

// A setting is an algorithm with its parameters, by which requests are decided. It stays as it is.
type setting struct {
	model
	algorithm  Algorithm
	redated    atomic.Pointer[[]any] // those of another time, by which they were not decided
	generation string                // part of the Redis keys, unless nothing was ever forgotten
}

func newSetting(a Algorithm) *setting {
	return &setting{algorithm: a, model: a.model()}
}

// fleetSetting is newSetting for a limiter whose parameters change.
func fleetSetting(a Algorithm, generation string) *setting {
	n := newSetting(a)
	n.generation = generation
	return n
}

// fleetSignature is what the Redis keys have in place of the parameters.
func fleetSignature(n *setting) string {
	if n.parametersAt != nil {
		return signature(n) + ":fleet"
	}
	return stateName(n.script) + ":fleet"
}

// A record is what Redis has about the parameters in force.
type record struct {
	Algorithm  string          `json:"algorithm"`
	Parameters json.RawMessage `json:"parameters"`
	Generation string          `json:"generation,omitempty"`
}

// recordOf returns the record of a setting, and its text.
func recordOf(n *setting) (r record, text string) {
	r = record{Algorithm: n.script.Name, Generation: n.generation}
	var parameters any = n.algorithm
	switch a := n.algorithm.(type) {
	case CalendarQuota:
		r.Algorithm, parameters = signature(n), struct{ Permits int64 }{a.Permits}
	case DebtBucket: // another limiter than those with which it shares a script
		r.Algorithm = "debt_bucket"
	}
	r.Parameters, _ = json.Marshal(parameters) // of numbers
	all, _ := json.Marshal(r)
	return r, string(all)
}

// read returns the setting that text describes, which has the algorithm of n.
func (n *setting) read(name, text string) (*setting, error) {
	var r record
	own, _ := recordOf(n)
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Algorithm == "" {
		return nil, malformedRecord(name)
	}
	if r.Algorithm != own.Algorithm {
		return nil, invalid("other processes use the limiter %q with the algorithm %s, and this one with %s; give one of them another name",
			name, r.Algorithm, own.Algorithm)
	}
	v := reflect.New(reflect.TypeOf(n.algorithm))
	v.Elem().Set(reflect.ValueOf(n.algorithm))
	if err := json.Unmarshal(r.Parameters, v.Interface()); err != nil {
		return nil, malformedRecord(name)
	}
	a := v.Elem().Interface().(Algorithm)
	if a.check() != nil {
		return nil, malformedRecord(name)
	}
	return fleetSetting(a, r.Generation), nil
}

func malformedRecord(name string) error {
	return fmt.Errorf("%w: the key %s holds what no limiter writes; delete it, and a process that uses the limiter writes it anew",
		ratelimiter.ErrMalformed, recordKey(name))
}

func recordKey(name string) string { return layout + ":{" + name + "}:parameters" }

func sameParameters(a, b *setting) bool {
	x, _ := recordOf(a)
	y, _ := recordOf(b)
	return string(x.Parameters) == string(y.Parameters)
}

func newGeneration() string {
	var random [6]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}
