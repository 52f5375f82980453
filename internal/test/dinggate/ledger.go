// SPDX-License-Identifier: Apache-2.0

package dinggate

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// maxPenalties is how many penalties a ledger lists: a fleet that does not listen starts one a second.
const maxPenalties = 10_000

// Counts are what became of calls. Calls is the sum of Admitted, Refused and Invalid.
type Counts struct {
	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	Refused  int64 `json:"refused"`
	// Invalid are those that no limit refused, but that named no token or no API. Only those of all
	// and of a caller; for a dimension they are Admitted.
	Invalid int64 `json:"invalid"`
	// Penalties is how many were started: of a dimension's key with those from outside, of a caller
	// those that its calls started.
	Penalties int64 `json:"penalties"`
	// During are the refused calls that were made while a penalty was on: Refused without those that
	// started one.
	During int64 `json:"during_penalty"`
}

// refused counts a refused call.
func (c *Counts) refused(during bool) {
	c.Calls++
	c.Refused++
	if during {
		c.During++
	}
}

func (c *Counts) add(o Counts) {
	c.Calls += o.Calls
	c.Admitted += o.Admitted
	c.Refused += o.Refused
	c.Invalid += o.Invalid
	c.Penalties += o.Penalties
	c.During += o.During
}

// A Penalty is one that a Gate inflicted.
type Penalty struct {
	Dimension Dimension `json:"dimension"`
	Key       string    `json:"key"`
	Start     time.Time `json:"start"`
	Until     time.Time `json:"until"`
	// Outside says that [Gate.Ban] started it, and no call.
	Outside bool `json:"outside"`
	// Calls that were made while it was on, without the one that started it.
	Calls int64 `json:"calls"`
	// Last is how long after Start the last of them came.
	Last time.Duration `json:"last_ns"`
}

// A KeyLedger is what a Gate knows of one key of a dimension. A call that another dimension refused
// before may be missing; see the package comment for their order.
type KeyLedger struct {
	Dimension Dimension `json:"dimension"`
	Key       string    `json:"key"`
	Counts
	// Limit is what any window may hold.
	Limit int `json:"limit"`
	// Worst is the most calls that any sliding window held, refused ones too; of DimMonth, a month.
	Worst int `json:"worst"`
}

// A CallerLedger is what a Gate knows of one process; see [HeaderCaller].
type CallerLedger struct {
	Counts
}

// A Ledger is all that a Gate has seen, at one instant.
type Ledger struct {
	Since time.Time `json:"since"`
	Now   time.Time `json:"now"`
	// Total are all calls, and all penalties.
	Total Counts `json:"total"`
	// Dimensions are the sums over the keys of each dimension.
	Dimensions map[Dimension]Counts `json:"dimensions"`
	// Keys are ordered by dimension and key.
	Keys []KeyLedger `json:"keys"`
	// Callers are by name: the HeaderCaller, or else the IP.
	Callers map[string]CallerLedger `json:"callers"`
	// Penalties are in the order of their starts, the first 10,000 of them.
	Penalties []Penalty `json:"penalties"`
}

// Key is the part of the ledger on one key of a dimension, and zero for one that was never called.
func (l Ledger) Key(d Dimension, key string) KeyLedger {
	for _, k := range l.Keys {
		if k.Dimension == d && k.Key == key {
			return k
		}
	}
	return KeyLedger{}
}

// Ledger is a copy of what the Gate has seen.
func (g *Gate) Ledger() Ledger {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := Ledger{
		Since: g.since, Now: time.Now(), Total: g.total,
		Dimensions: map[Dimension]Counts{},
		Keys:       make([]KeyLedger, 0, len(g.meters)),
		Callers:    make(map[string]CallerLedger, len(g.callers)),
		Penalties:  make([]Penalty, 0, len(g.penalties)),
	}
	l.Total.Penalties = g.started
	for _, m := range g.meters {
		l.Keys = append(l.Keys, KeyLedger{Dimension: m.dimension, Key: m.key, Counts: m.Counts,
			Limit: m.limit.Calls, Worst: m.worst})
		sum := l.Dimensions[m.dimension]
		sum.add(m.Counts)
		l.Dimensions[m.dimension] = sum
	}
	slices.SortFunc(l.Keys, func(a, b KeyLedger) int {
		return cmp.Or(cmp.Compare(a.Dimension, b.Dimension), cmp.Compare(a.Key, b.Key))
	})
	for name, c := range maps.All(g.callers) {
		l.Callers[name] = *c
	}
	for _, p := range g.penalties {
		l.Penalties = append(l.Penalties, *p)
	}
	return l
}

func (g *Gate) serveLedger(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(g.Ledger()) // fails only when nobody listens any more
}
