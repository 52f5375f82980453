// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/retry"
)

// An Origin is where a process of this package connects from, as far as the name of a connection tells.
type Origin struct {
	Name string // that of the connection, without the id; may be empty
	Host string // the address of the client
}

// clientID finds the id of a client in the name of a connection.
var clientID = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// A located is what a server has told of its connections.
type located struct {
	at     time.Time
	denied bool // it is not asked again: each denial leaves an entry in ACL LOG
	of     map[uint16]Origin
}

// originAge is for how long a server is not asked for its connections again.
const originAge = 10 * time.Second

// Locate finds out where the processes connect from that have permits of st in use, or callers that wait: those that have the id
// of the client in the name of their connections, from which their tag follows. It asks the server that holds the limiter, by CLIENT LIST.
// Where that does not tell, as to a user that may not run it, nothing is known.
func (s *Survey) Locate(ctx context.Context, st *State) {
	if st.Problem != nil || len(st.Holders().Processes) == 0 {
		return
	}
	s.mu.Lock()
	known := s.origins[st.Node]
	s.mu.Unlock()
	if known.denied || time.Since(known.at) < originAge {
		st.Origins = known.of
		return
	}
	var err error
	st.Origins, err = s.connections(ctx, st.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.origins == nil {
		s.origins = map[string]located{}
	}
	s.origins[st.Node] = located{time.Now(), err != nil && dispatch.Classify(err) == retry.Executed, st.Origins}
}

// connections asks the server that holds the limiter of that name. It tells of a thousand connections in a millisecond.
func (s *Survey) connections(ctx context.Context, name string) (map[uint16]Origin, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return nil, err
	}
	p := fromMasters(ctx, rdb)
	list := p.ClientList(ctx)
	if err := s.exec(ctx, p); err != nil {
		return nil, err
	}
	text, err := list.Result()
	if err != nil {
		return nil, err
	}
	of := map[uint16]Origin{}
	for line := range strings.Lines(text) {
		var addr, named string
		for _, field := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(field, "="); key {
			case "addr":
				addr = value
			case "name":
				named = value
			}
		}
		id := clientID.FindString(named)
		if id == "" {
			continue
		}
		tag, _ := strconv.ParseUint(id[:4], 16, 16)
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr // of a Unix socket
		}
		of[uint16(tag)] = Origin{strings.Trim(strings.Replace(named, id, "", 1), "-_:/@."), host}
	}
	return of, nil
}
