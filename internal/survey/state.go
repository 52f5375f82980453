package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// part is how many members one command reads, which takes Redis a quarter of a millisecond.
const part = 500

// A State is what Redis holds of one limiter and one client at one instant.
type State struct {
	Name     string
	ClientID string // whose keys they are; empty for those that all clients share
	Node     string // the address of the server, as far as the client knows it
	Time     time.Time

	// Keys are the names of the keys: the hash, the value and the permits. Types are what TYPE returns for each.
	Keys  [3]string
	Types [3]string
	TTLs  [3]time.Duration // -1 for a key without one, -2 for a key that does not exist

	Fields  map[string]string // of the hash; if it has more than 64, only those of a limiter
	Rate    permit.Rate
	Problem error // why the hash is not that of a limiter, or nil

	Value    string
	HasValue bool
	Count    int64    // members in the set
	Members  []Member // oldest first: all of them if Whole is true, otherwise the 500 oldest and the 500 newest
	Whole    bool

	ahead string // who takes permits ahead of their return, as scripts/reserve.lua has it

	// OneInstant reports whether everything was read at one instant. It is false on a cluster whose slots of the keys
	// differ.
	OneInstant bool
}

// Read returns the state of a limiter: the keys that all clients share if client is empty, and otherwise those of
// that client. A limiter that does not exist has a Problem that is permit.ErrNotInitialized.
//
// It sends at most three batches of commands, each of which takes Redis less than a millisecond.
func (s *Survey) Read(ctx context.Context, name, client string) (*State, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return nil, err
	}
	st, err := s.readAt(ctx, rdb, name, client)
	if moved(err) && s.Divided() {
		// A slot is on its way to another node, which the client of the whole cluster follows.
		st, err = s.readAt(ctx, s.rdb, name, client)
	}
	return st, err
}

func (s *Survey) readAt(ctx context.Context, rdb redis.UniversalClient, name, client string) (*State, error) {
	st := &State{Name: name, ClientID: client, Keys: keysOf(name, client), OneInstant: true}
	if o, ok := rdb.(interface{ Options() *redis.Options }); ok {
		st.Node = o.Options().Addr
	}
	if s.Divided() && redisson.CheckClusterSafe(name, client) != nil {
		rdb, st.OneInstant = s.rdb, false
	}
	for range 3 {
		changed, err := st.read(ctx, rdb)
		if err != nil || !changed {
			return st, err
		}
	}
	return nil, fmt.Errorf("the keys of %q change their types faster than they can be read", name)
}

// keysOf returns the hash, value and permits keys.
func keysOf(name, client string) [3]string {
	k := redisson.NewKeys(name, client)
	typ := permit.Overall
	if client != "" {
		typ = permit.PerClient
	}
	return [3]string{k.Hash, k.Value[typ], k.Permits[typ]}
}

// aheadKey returns the key of those that take permits ahead.
func aheadKey(name, client string) string {
	k := redisson.NewKeys(name, client)
	if client != "" {
		return k.Ahead[permit.PerClient]
	}
	return k.Ahead[permit.Overall]
}

// read looks at the types of the keys, and then reads those that have the right one. It reports whether a type changed
// in between.
func (st *State) read(ctx context.Context, rdb redis.UniversalClient) (changed bool, err error) {
	p := rdb.Pipeline()
	var types [3]*redis.StatusCmd
	for i, key := range st.Keys {
		types[i] = p.Type(ctx, key)
	}
	size := p.HLen(ctx, st.Keys[0])
	queue := aheadKey(st.Name, st.ClientID)
	queued := p.Type(ctx, queue)
	if err := exec(ctx, p); err != nil {
		return false, err
	}
	for i := range types {
		if st.Types[i], err = types[i].Result(); err != nil {
			return false, err
		}
	}

	p = rdb.Pipeline()
	if st.OneInstant {
		p = rdb.TxPipeline()
	}
	now := p.Time(ctx)
	var ttls [3]*redis.Cmd
	for i, key := range st.Keys {
		ttls[i] = p.Do(ctx, "pttl", key)
	}
	var (
		all            *redis.MapStringStringCmd
		some           *redis.SliceCmd
		value, ahead   *redis.StringCmd
		count          *redis.IntCmd
		oldest, newest *redis.ZSliceCmd
	)
	if st.Types[0] == "hash" {
		if size.Val() <= 64 {
			all = p.HGetAll(ctx, st.Keys[0])
		} else {
			some = p.HMGet(ctx, st.Keys[0], fields...)
		}
	}
	if t := st.Types[1]; t == "string" || t == "none" {
		value = p.Get(ctx, st.Keys[1])
	}
	if queued.Val() == "string" {
		ahead = p.Get(ctx, queue)
	}
	if t := st.Types[2]; t == "zset" || t == "none" {
		count = p.ZCard(ctx, st.Keys[2])
		oldest = p.ZRangeWithScores(ctx, st.Keys[2], 0, part-1)
		newest = p.ZRevRangeWithScores(ctx, st.Keys[2], 0, part-1)
	}
	if err := exec(ctx, p); err != nil {
		return false, err
	}
	if err := now.Err(); err != nil {
		return false, err
	}
	st.Time = now.Val()
	for i := range ttls {
		ttl, err := ttls[i].Int64()
		if err != nil {
			return false, err
		}
		st.TTLs[i] = redisson.PTTL(ttl)
	}
	st.Fields = map[string]string{}
	if all != nil {
		if st.Fields, err = all.Result(); err != nil {
			return wrongType(err)
		}
	} else if some != nil {
		values, err := some.Result()
		if err != nil {
			return wrongType(err)
		}
		for i, v := range values {
			if v, ok := text(v); ok {
				st.Fields[fields[i]] = v
			}
		}
	}
	st.Rate, st.Problem = redisson.ParseRate(st.Fields)
	if value != nil {
		st.Value, err = value.Result()
		if st.HasValue = err == nil; err != nil && !errors.Is(err, redis.Nil) {
			return wrongType(err)
		}
	}
	if ahead != nil {
		st.ahead = ahead.Val() // it may have expired by now
	}
	if count != nil {
		if st.Count, err = count.Result(); err != nil {
			return wrongType(err)
		}
		first, last := membersOf(oldest.Val()), membersOf(newest.Val())
		slices.Reverse(last)
		st.Whole = st.Count <= int64(len(first)+len(last))
		if st.Whole { // what both have counts once
			last = last[max(0, int64(len(first)+len(last))-st.Count):]
		}
		st.Members = append(first, last...)
	}
	return false, nil
}

// wrongType reports whether err says that a key got another type since it was looked at, and returns any other error.
func wrongType(err error) (bool, error) {
	if strings.HasPrefix(err.Error(), "WRONGTYPE") {
		return true, nil
	}
	return false, err
}

// CoolDown returns when the limiter's cool-down ends, or the zero time if there is none.
func (st *State) CoolDown() time.Time { return coolDown(st.Fields, st.Time) }

// ValueNumber returns the value as a number. It reports false if the key does not exist or holds anything else than a
// whole number.
func (st *State) ValueNumber() (int64, bool) {
	n, ok := whole(st.Value)
	return n, st.HasValue && ok
}

// Sum returns the permits of all members, and those of the members that have expired. It reports false unless Whole is
// true.
func (st *State) Sum() (all, expired int64, ok bool) {
	for _, m := range st.Members {
		all += int64(m.Permits)
		if st.expired(m) {
			expired += int64(m.Permits)
		}
	}
	return all, expired, st.Whole
}

func (st *State) expired(m Member) bool {
	return st.Problem == nil && m.Expired(st.Time, st.Rate.Interval)
}

// A Peek is what a caller would be told now.
type Peek struct {
	Available int64
	Wait      time.Duration // until the permits are granted if nobody else takes them; 0 for at once
	Known     bool          // false if it would take more members than were read
	Why       string        // what the caller waits for, in words; empty if it does not wait
}

// Peek returns what a caller that asks for that many permits would be told. It follows the state that was read and
// sends nothing.
func (st *State) Peek(permits int64) (Peek, error) {
	if st.Problem != nil {
		return Peek{}, st.Problem
	}
	if permits < 1 || permits > permit.Max {
		return Peek{}, fmt.Errorf("%w: %d permits; ask for 1 to %d", permit.ErrInvalidArgument, permits, int64(permit.Max))
	}
	if permits > st.Rate.Permits {
		return Peek{}, permit.Exceeds(st.Name, permits, st.Rate.Permits)
	}
	sum, expired, whole := st.Sum()
	value, ok := st.ValueNumber()
	if !ok || whole && value+sum < st.Rate.Permits { // the next call of this package makes them add up
		if !whole {
			return Peek{}, nil
		}
		value = st.Rate.Permits - sum
	}
	pk := Peek{Available: max(0, min(st.Rate.Permits, value+expired)), Known: true}
	free := value + expired
	if free < permits {
		pk.Known = false
		for _, m := range st.Members {
			if st.expired(m) {
				continue
			}
			if free += int64(m.Permits); free >= permits {
				pk.Known = true
				pk.Wait = max(0, m.Time().Add(st.Rate.Interval).Sub(st.Time))
				if pk.Why = "the permits in use"; m.Mark() == 'c' {
					pk.Why = "the cool-down"
				}
				break
			}
		}
		if !whole && len(st.Members) > part && pk.Wait > 0 && st.gapBefore(pk.Wait) {
			pk.Known = false
		}
	}
	if st.Rate.MinGap > 0 {
		if m, ok := st.newestGrant(); ok {
			gap := min(st.Rate.MinGap*time.Duration(max(1, m.Permits)), st.Rate.Interval)
			if left := m.Time().Add(gap).Sub(st.Time); left > pk.Wait {
				pk.Wait, pk.Why = left, "the least gap between permits"
			}
		}
	}
	if at := st.CoolDown(); !at.IsZero() {
		pk.Available = 0
		if left := at.Sub(st.Time); left >= pk.Wait {
			pk.Wait, pk.Why = left, "the cool-down"
		}
	}
	return pk, nil
}

// gapBefore reports whether the member that falls due after wait is behind members that were not read.
func (st *State) gapBefore(wait time.Duration) bool {
	return wait > st.Members[part-1].Time().Add(st.Rate.Interval).Sub(st.Time)
}

// newestGrant returns the newest member that is somebody's grant.
func (st *State) newestGrant() (Member, bool) {
	for _, m := range slices.Backward(st.Members) {
		if mark := m.Mark(); mark == 0 || mark == 't' {
			return m, true
		}
	}
	return Member{}, false
}

// ReopenUntil returns when the limiter has re-opened after its cool-down, or the zero time.
func (st *State) ReopenUntil() time.Time { return instant(st.Fields, "reopenUntil") }
