// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
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

// Hash reports whether the hash of that name shows that it is a limiter's.
func (s *Survey) Hash(ctx context.Context, name string) (bool, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return false, err
	}
	p := fromMasters(ctx, rdb)
	hash, size := p.HMGet(ctx, name, fields...), p.HLen(ctx, name)
	if err := s.exec(ctx, p); err != nil {
		return false, err
	}
	if err := hash.Err(); err != nil && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		return false, err
	}
	known := fieldsOf(hash.Val())
	return hashShows(known, hasOthers(name, size.Val(), known)), nil
}

// mostFields is how many fields a hash has at most that are all read.
const mostFields = 64

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
	Problem error // why the hash is not that of a limiter, or nil; ErrWrongType if it is no hash
	others  bool  // the hash has fields that a limiter does not have

	Value    string
	HasValue bool
	Count    int64    // members in the set
	Members  []Member // oldest first: all of them if Whole is true, otherwise the 500 oldest and the 500 newest
	Whole    bool
	gap      int // how many of the members are the oldest, unless Whole is true
	// Took is how long it took to read the members, of which those between the oldest and the newest 500 are older than Time by
	// so much at most. It is 0 if all were read at Time.
	Took time.Duration

	// Origins are where processes connect from that have something in the set, or callers that wait, by their tags; see [Survey.Locate].
	Origins map[uint16]Origin

	ahead string // who takes permits ahead of their return, as scripts/reserve.lua has it

	// OneInstant reports whether everything was read at one instant. It is false on a cluster whose slots of the keys
	// differ.
	OneInstant bool
}

// Read returns the state of a limiter: the keys that all clients share if client is empty, and otherwise those of
// that client. A limiter that does not exist has a Problem that is permit.ErrNotInitialized.
//
// It sends one batch of commands, which takes Redis less than a millisecond, and one more for a hash with fields that limiters do not have.
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
		st.Node = s.addr(ctx, o.Options())
	}
	if s.Divided() && redisson.CheckClusterSafe(name, client) != nil {
		rdb, st.OneInstant = s.rdb, false
	}
	for range 3 {
		changed, err := st.read(ctx, rdb)
		if err != nil && strings.HasPrefix(err.Error(), "EXECABORT") { // which does not say why
			st.OneInstant = false
			changed, err = st.read(ctx, rdb)
		}
		if err != nil || !changed {
			return st, err
		}
	}
	return nil, fmt.Errorf("the keys of %q change their types faster than they can be read", name)
}

// Shared returns what st, which is the state of a client, says of the keys that all clients share: the hash. The value and the
// permits, which were not read, are taken to be absent.
func (st *State) Shared() *State {
	shared := *st
	shared.ClientID, shared.Keys = "", keysOf(st.Name, "")
	shared.Types = [3]string{st.Types[0], "none", "none"}
	shared.TTLs = [3]time.Duration{st.TTLs[0], -2, -2}
	shared.Value, shared.HasValue, shared.Count, shared.Members, shared.Whole, shared.ahead = "", false, 0, nil, true, ""
	return &shared
}

// keysOf returns the hash, value and permits keys.
func keysOf(name, client string) [3]string {
	return [3]string(redisson.NewKeys(name, client).Of(typeOf(client)))
}

// typeOf returns the type whose keys are those of client, or of all clients if it is empty.
func typeOf(client string) permit.Type {
	if client == "" {
		return permit.Overall
	}
	return permit.PerClient
}

// read reads the keys, at one instant if they are in one slot. It reports whether the type of a key changed in between, which happens
// only if they are not.
func (st *State) read(ctx context.Context, rdb redis.UniversalClient) (changed bool, err error) {
	p := fromMasters(ctx, rdb)
	if st.OneInstant {
		p = rdb.TxPipeline()
	}
	now := p.Time(ctx)
	var types [3]*redis.StatusCmd
	var ttls [3]*redis.Cmd
	for i, key := range st.Keys {
		types[i], ttls[i] = p.Type(ctx, key), p.Do(ctx, "pttl", key)
	}
	hash, size := p.HMGet(ctx, st.Keys[0], fields...), p.HLen(ctx, st.Keys[0])
	value := p.Get(ctx, st.Keys[1])
	ahead := p.Get(ctx, redisson.NewKeys(st.Name, st.ClientID).Ahead(typeOf(st.ClientID)))
	count := p.ZCard(ctx, st.Keys[2])
	oldest, newest := p.ZRangeWithScores(ctx, st.Keys[2], 0, part-1), p.ZRevRangeWithScores(ctx, st.Keys[2], 0, part-1)
	if _, err := send(ctx, p); err != nil {
		return false, err
	}
	if st.Time, err = now.Result(); err != nil {
		return false, err
	}
	for i := range ttls {
		if st.Types[i], err = types[i].Result(); err != nil {
			return false, err
		}
		ttl, err := ttls[i].Int64()
		if err != nil {
			return false, err
		}
		st.TTLs[i] = redisson.PTTL(ttl)
	}
	st.Value, st.HasValue, st.Count, st.Members, st.Whole = "", false, 0, nil, true
	right := func(i int) bool { return st.Types[i] == KeyTypes[i] || st.Types[i] == "none" }
	st.Fields = map[string]string{}
	if right(0) {
		if err := cmp.Or(hash.Err(), size.Err()); err != nil {
			return wrongType(err)
		}
		st.Fields = fieldsOf(hash.Val())
		if err := st.otherFields(ctx, rdb, size.Val()); err != nil {
			return wrongType(err)
		}
	}
	st.others = hasOthers(st.Name, size.Val(), st.Fields)
	st.Rate, st.Problem = redisson.ParseRate(st.Fields)
	if !right(0) {
		st.Problem = wrongTypeError(st.Keys[0], st.Types[0], KeyTypes[0])
	}
	if right(1) {
		st.Value, err = value.Result()
		if st.HasValue = err == nil; err != nil && !errors.Is(err, redis.Nil) {
			return wrongType(err)
		}
	}
	st.ahead = ahead.Val()
	if right(2) {
		if st.Count, err = count.Result(); err != nil {
			return wrongType(err)
		}
		last := membersOf(newest.Val())
		slices.Reverse(last)
		st.take(membersOf(oldest.Val()), last)
	}
	return false, nil
}

// otherFields reads the fields of the hash that a limiter does not have, unless there are many.
func (st *State) otherFields(ctx context.Context, rdb redis.UniversalClient, size int64) error {
	if size <= int64(len(st.Fields)) || size > mostFields {
		return nil
	}
	p := fromMasters(ctx, rdb)
	hash := p.HGetAll(ctx, st.Keys[0])
	if _, err := send(ctx, p); err != nil {
		return err
	}
	for field, value := range hash.Val() {
		if _, ok := st.Fields[field]; !ok && !slices.Contains(fields, field) {
			st.Fields[field] = value
		}
	}
	return hash.Err()
}

// wrongType reports whether err says that a key got another type since it was looked at, and returns any other error.
func wrongType(err error) (bool, error) {
	if strings.HasPrefix(err.Error(), "WRONGTYPE") {
		return true, nil
	}
	return false, err
}

// CoolDown returns when the limiter's cool-down ends, or the zero time if there is none at st.Time.
func (st *State) CoolDown() time.Time {
	if at := instant(st.Fields, "coolDown"); at.After(st.Time) {
		return at
	}
	return time.Time{}
}

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

// Peek returns what a caller that asks for that many permits would be told. It follows the state that was read and
// sends nothing. The error is the one that calls return, of a limiter that is not initialized, malformed or has a key of
// another type; or ErrInvalidArgument or ErrPermitsExceedRate.
func (st *State) Peek(permits int64) (Peek, error) {
	if st.Problem != nil {
		return Peek{}, st.Problem
	}
	if err := st.WrongType(); err != nil {
		return Peek{}, err
	}
	return st.peek(permits)
}

// parts returns the oldest members and, if there is a gap behind them, the newest ones.
func (st *State) parts() (oldest, newest []Member) {
	if st.Whole {
		return st.Members, nil
	}
	return st.Members[:st.gap], st.Members[st.gap:]
}

// take takes the members that were read, the oldest and the newest ones, both the oldest first. What both have counts once.
func (st *State) take(oldest, newest []Member) {
	st.Whole, st.gap = st.Count <= int64(len(oldest)+len(newest)), len(oldest)
	if st.Whole {
		newest = newest[min(len(newest), max(0, len(oldest)+len(newest)-int(st.Count))):]
	}
	st.Members = append(oldest, newest...)
}

// ErrWrongType reports that a key of a limiter holds another type of data than a limiter keeps there, so that every call
// fails with WRONGTYPE.
var ErrWrongType = errors.New("wrong type")

// KeyTypes are the types of the keys of a limiter, as TYPE returns them: the hash, the value and the permits.
var KeyTypes = [3]string{"hash", "string", "zset"}

func wrongTypeError(key, typ, want string) error {
	return fmt.Errorf("%w: %q is a %s, not a %s", ErrWrongType, key, typ, want)
}

// WrongType returns an error if a key of the limiter is not of the type that a limiter has there. It wraps ErrWrongType.
func (st *State) WrongType() error {
	for i, typ := range st.Types {
		if want := KeyTypes[i]; typ != want && typ != "none" {
			return wrongTypeError(st.Keys[i], typ, want)
		}
	}
	return nil
}

// ReopenUntil returns when the limiter has re-opened after its cool-down, or the zero time.
func (st *State) ReopenUntil() time.Time { return instant(st.Fields, "reopenUntil") }
