// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

func newSetting(a Algorithm) *calls.Setting {
	return &calls.Setting{Algorithm: a, Model: a.model()}
}

// fleetSetting is newSetting for a limiter whose parameters change.
func fleetSetting(a Algorithm, generation string) *calls.Setting {
	n := newSetting(a)
	n.Generation = generation
	return n
}

// fleetSignature is what the Redis keys have in place of the parameters.
func fleetSignature(n *calls.Setting) string {
	if n.ParametersAt != nil {
		return signature(n) + ":fleet"
	}
	return stateName(n.Script) + ":fleet"
}

// A record is what Redis has about the parameters in force.
type record struct {
	Algorithm  string          `json:"algorithm"`
	Parameters json.RawMessage `json:"parameters"`
	Generation string          `json:"generation,omitempty"`
}

// recordOf returns the record of a setting, and its text.
func recordOf(n *calls.Setting) (r record, text string) {
	r = record{Algorithm: n.Script.Name, Generation: n.Generation}
	var parameters any = n.Algorithm
	switch a := n.Algorithm.(type) {
	case CalendarQuota:
		r.Algorithm, parameters = signature(n), struct{ Permits int64 }{a.Permits}
	case DebtBucket: // another limiter than those with which it shares a script
		r.Algorithm = "debt_bucket"
	}
	r.Parameters, _ = json.Marshal(parameters) // of numbers
	all, _ := json.Marshal(r)
	return r, string(all)
}

// readRecord returns the setting that text describes, which has the algorithm of n.
func readRecord(n *calls.Setting, name, text string) (*calls.Setting, error) {
	var r record
	own, _ := recordOf(n)
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Algorithm == "" {
		return nil, malformedRecord(name)
	}
	if r.Algorithm != own.Algorithm {
		return nil, calls.Invalid("other processes use the limiter %q with the algorithm %s, and this one with %s; give one of them another name",
			name, r.Algorithm, own.Algorithm)
	}
	v := reflect.New(reflect.TypeOf(n.Algorithm))
	v.Elem().Set(reflect.ValueOf(n.Algorithm))
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

func recordKey(name string) string { return calls.Layout + ":{" + name + "}:parameters" }

func sameParameters(a, b *calls.Setting) bool {
	x, _ := recordOf(a)
	y, _ := recordOf(b)
	return string(x.Parameters) == string(y.Parameters)
}

func newGeneration() string {
	var random [6]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}
