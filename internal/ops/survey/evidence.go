// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/redisson"
	"github.com/redis/go-redis/v9"
)

// Nothing in Redis belongs to a limiter by its name alone: other programs have hashes with a rate and keys that end in
// :value or :permits. What is called a limiter here shows it in its data: its hash has the fields of a limiter, or a whole
// number is left and the members of the set have a layout that limiters write.

// ErrForeign reports that keys of the limiter's name exist, and that nothing in them shows that they are a limiter's.
var ErrForeign = errors.New("it looks like none of ours")

// hashShows reports whether the fields of a hash show a limiter; others says that it has fields that a limiter does not have.
// All four have to be right. If there are no others one may be wrong or missing, so that a limiter is recognized that
// somebody has broken, and one of Redisson before 3.38.0, which has no keepAliveTime.
func hashShows(fields map[string]string, others bool) bool {
	doubts := 0
	for _, field := range []string{"rate", "interval", "type", "keepAliveTime"} {
		n, ok := whole(fields[field])
		if !ok || n < 0 || n == 0 && (field == "rate" || field == "interval") || n > 1 && field == "type" {
			doubts++
		}
	}
	return doubts == 0 || doubts == 1 && !others
}

// hasOthers reports whether a hash has fields that are not those of a limiter of that name. Known holds some of its fields, size
// is how many there are.
func hasOthers(name string, size int64, known map[string]string) bool {
	for field := range known {
		if strings.HasPrefix(field, redisson.Suffixed(name, "permits")) { // how far heal has come
			size--
		}
	}
	for _, field := range fields {
		if _, ok := known[field]; ok {
			size--
		}
	}
	return size > 0
}

// Known reports whether m is a member as limiters write it.
func (m Member) Known() bool { return redisson.IsGrant([]byte(m.Raw), m.Score) }

func allKnown(members []Member) bool {
	for _, m := range members {
		if !m.Known() {
			return false
		}
	}
	return len(members) > 0
}

// HashShows reports whether the hash shows that it is a limiter's.
func (st *State) HashShows() bool {
	return st.Types[0] == KeyTypes[0] && hashShows(st.Fields, st.others)
}

// GrantsShow reports whether value and permits show that they are a limiter's.
func (st *State) GrantsShow() bool {
	_, ok := st.ValueNumber()
	return ok && allKnown(st.Members)
}

// MembersShow reports whether the members of the permits show that they are a limiter's, whatever the value is.
func (st *State) MembersShow() bool { return allKnown(st.Members) }

// MayHold reports whether the keys of a client may hold grants, though they show nothing of a limiter: its members are grants, or its id
// is one as clients draw it.
func (st *State) MayHold() bool {
	return !st.Shows() && (st.MembersShow() || redisson.IsClient(st.ClientID))
}

// Shows reports whether the keys are a limiter's by what they hold. Of the keys of a client whose limiter has a sound rate, one of the
// two is enough: the other may be gone, or be what is wrong. A number alone may be anybody's, unless the client has an id as clients
// draw it or all permits of the rate are left.
func (st *State) Shows() bool {
	switch n, ok := st.ValueNumber(); {
	case st.GrantsShow() || st.ClientID == "":
		return st.GrantsShow() || st.HashShows()
	case st.Problem != nil || st.Rate.Type != permit.PerClient || !st.HashShows():
		return false
	case allKnown(st.Members):
		return true
	default:
		return ok && (st.Types[2] == "none" && n == st.Rate.Permits || redisson.IsClient(st.ClientID))
	}
}

// Writable returns an error if a write to the limiter that st is the state of would change, or delete, keys that show
// nothing of a limiter, or fail because a key is of another type. It wraps ErrForeign or ErrWrongType. A limiter that does not
// exist is nobody's. The write reaches the keys of both types if both is true, and otherwise only those of the type that the limiter has.
func (s *Survey) Writable(ctx context.Context, st *State, both bool) error {
	states := []*State{st}
	if st.ClientID != "" {
		main, err := s.Read(ctx, st.Name, "")
		if err != nil {
			return err
		}
		states = append(states, main)
	}
	hash := st.Types[0] == "none"
	var foreign []string
	for _, st := range states {
		perClient := st.Problem == nil && st.Rate.Type == permit.PerClient
		// A PER_CLIENT limiter does not use the keys that all clients share.
		reached := both || st.ClientID != "" || !perClient
		if err := st.WrongType(); err != nil && (reached || st.Types[0] != KeyTypes[0]) {
			return fmt.Errorf("%w; nothing was changed", err)
		}
		hash = hash || st.HashShows() || st.GrantsShow()
		used := st.Shows()
		if st.ClientID == "" && perClient {
			used = st.GrantsShow()
		}
		if st.HasValue && !used && reached {
			foreign = append(foreign, fmt.Sprintf("%q", st.Keys[1]))
		}
		if st.Count > 0 && !used && reached {
			foreign = append(foreign, fmt.Sprintf("%q", st.Keys[2]))
		}
	}
	if !hash {
		foreign = append([]string{fmt.Sprintf("%q", st.Keys[0])}, foreign...)
	}
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("%w: nothing in %s shows that it is a limiter's; nothing was changed", ErrForeign, strings.Join(foreign, ", "))
}

// A holder is a limiter, or one of its clients, whose value and permits are looked at.
type holder struct{ name, client string }

// An evidence is what holders show.
type evidence struct {
	those  []holder // value and permits show that they are a limiter's, by the oldest members
	grants []holder // the members do, and the value does not
	unsure []holder // nothing does, and they may have grants all the same: see [State.MayHold]
}

// evident looks at the value and the permits of holders. Those that Redis does not let it read are unsure, and told to reject.
func (s *Survey) evident(ctx context.Context, rdb redis.UniversalClient, list []holder, reject func(string, error)) (found evidence, err error) {
	type cmds struct {
		value   *redis.StringCmd
		members *redis.ZSliceCmd
	}
	p, all := fromMasters(ctx, rdb), make([]cmds, len(list))
	for i, h := range list {
		k := keysOf(h.name, h.client)
		all[i] = cmds{p.Get(ctx, k[1]), p.ZRangeWithScores(ctx, k[2], 0, oldest-1)}
	}
	if err := s.exec(ctx, p); err != nil {
		return evidence{}, err
	}
	for i, h := range list {
		c, rejected := all[i], false
		for _, err := range []error{c.members.Err(), c.value.Err()} {
			if err != nil && !errors.Is(err, redis.Nil) && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
				reject(h.name, err)
				rejected = true
				break
			}
		}
		_, ok := whole(c.value.Val())
		switch known := allKnown(membersOf(c.members.Val())); {
		case known && ok && c.value.Err() == nil:
			found.those = append(found.those, h)
		case known:
			found.grants = append(found.grants, h)
		case rejected || redisson.IsClient(h.client):
			found.unsure = append(found.unsure, h)
		}
	}
	return found, nil
}
