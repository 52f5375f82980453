// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Joins says whether the calls of a lane may travel in a joint, whose keys are in several slots. They may if the lane
// leads to one server, which holds all of them. A proxy in front of several servers would have that of the first key
// run the calls: most do not know HELLO, and others do not pass on the id of a connection.
type joins struct {
	state atomic.Int32
	again atomic.Int64 // when they may after a server has rejected a joint, in ms since the epoch
}

// The states of joins.
const (
	joinsUnknown int32 = iota
	joinsAlways
	joinsNever
)

const rejoin = time.Minute // how long calls travel singly after a joint was rejected

func (j *joins) allowed() bool {
	return j.state.Load() == joinsAlways && time.Now().UnixMilli() >= j.again.Load()
}

// never makes calls travel singly.
func (j *joins) never() { j.state.Store(joinsNever) }

// rejected makes calls travel singly for a time.
func (j *joins) rejected() { j.again.Store(time.Now().Add(rejoin).UnixMilli()) }

// ask returns a command whose reply says whether calls may travel together, or nil if that is known.
func (j *joins) ask(ctx context.Context) *OnceCmd {
	if j.state.Load() != joinsUnknown {
		return nil
	}
	return &OnceCmd{redis.NewCmd(ctx, "hello")}
}

// hear learns from the outcome of what ask has returned.
func (j *joins) hear(hello OnceCmd) {
	reply, err := hello.Result()
	if !whole(reply) && !isReply(err) {
		return
	}
	fields := map[any]any{}
	switch v := reply.(type) {
	case map[any]any:
		fields = v
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			if name, ok := v[i].(string); ok {
				fields[name] = v[i+1]
			}
		}
	}
	id, _ := fields["id"].(int64)
	state := joinsNever
	if fields["mode"] == "standalone" && id > 0 {
		state = joinsAlways
	}
	j.state.CompareAndSwap(joinsUnknown, state)
}
