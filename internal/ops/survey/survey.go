// SPDX-License-Identifier: Apache-2.0

// Package survey finds the limiters of a Redis and reads what it holds of them. It needs no limiter's name, no
// client of this module that is running, and no script: it sends plain read commands, each of bounded work, and
// writes nothing.
package survey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/redis/go-redis/v9"
)

// A Survey reads limiters. It is safe for concurrent use.
type Survey struct {
	rdb    redis.UniversalClient
	sender dispatch.Sender

	mu     sync.Mutex
	master string    // the address of the master that a failover client is connected to
	asked  time.Time // when that was found out
	known  []Node    // what Nodes has returned the last time

	origins map[string]located // by the address of the server
}

// New returns a Survey of the Redis that rdb is connected to: a server, the master of a failover client, all
// masters of a cluster, or all shards of a ring. The caller remains responsible for closing rdb.
func New(rdb redis.UniversalClient) *Survey { return &Survey{rdb: rdb, sender: dispatch.Pin(rdb)} }

// A Node is one server that holds limiters.
type Node struct {
	Addr   string // host:port, or the path of a socket
	Client redis.UniversalClient
}

// A NodeError says that the limiters of a node are missing, or some of them.
type NodeError struct {
	Node string
	Err  error
}

// Error implements error.
func (e *NodeError) Error() string { return e.Node + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// ErrShardsDown reports that a ring does not send to some of its shards, because they do not reply.
var ErrShardsDown = errors.New("shards of the ring are down")

// Nodes returns the servers that hold limiters, in the order of their addresses. If shards of a ring are down, it
// returns those that are up together with an error that wraps ErrShardsDown.
func (s *Survey) Nodes(ctx context.Context) ([]Node, error) {
	var (
		mu    sync.Mutex
		nodes []Node
	)
	add := func(_ context.Context, rdb *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, Node{rdb.Options().Addr, rdb})
		return nil
	}
	var err error
	switch rdb := s.rdb.(type) {
	case interface {
		ForEachMaster(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
	}:
		err = rdb.ForEachMaster(ctx, add)
	case interface {
		ForEachShard(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
		Options() *redis.RingOptions
	}:
		if err = rdb.ForEachShard(ctx, add); err == nil {
			if all := len(rdb.Options().Addrs); len(nodes) < all {
				err = fmt.Errorf("%w: %d of %d", ErrShardsDown, all-len(nodes), all)
			}
		}
	case interface{ Options() *redis.Options }:
		nodes = []Node{{s.addr(ctx, rdb.Options()), s.rdb}}
	default:
		nodes = []Node{{"the server", s.rdb}}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
	if err == nil {
		s.mu.Lock()
		s.known = nodes
		s.mu.Unlock()
	}
	return nodes, err
}

// Failover is what go-redis has in place of an address for a client that asks sentinels for it.
const Failover = "FailoverClient"

// masterAge is for how long the address of the master is not asked for again.
const masterAge = 5 * time.Second

// addr returns the address of the server with these options. For that of a failover client it connects once more.
func (s *Survey) addr(ctx context.Context, o *redis.Options) string {
	if o.Addr != Failover || o.Dialer == nil {
		return o.Addr
	}
	s.mu.Lock()
	master, asked := s.master, s.asked
	s.mu.Unlock()
	if master != "" && time.Since(asked) < masterAge {
		return master
	}
	conn, err := o.Dialer(ctx, "tcp", o.Addr)
	if err != nil {
		return "the master" // the commands say why it cannot be reached
	}
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.asked = conn.RemoteAddr().String(), time.Now()
	return s.master
}

// Ping reports whether the servers reply: all masters of a cluster and all shards of a ring are asked, and the error
// is that of the first which does not.
func (s *Survey) Ping(ctx context.Context) error {
	nodes, err := s.nodesWithin(ctx, time.Hour)
	if err != nil {
		return err
	}
	if _, down := Answering(ctx, nodes, time.Hour); len(down) > 0 {
		return down[0]
	}
	return nil
}

// Reach returns the nodes that reply to a PING within patience, and an error for each of the others. All are asked at the
// same time. If shards of a ring are down, or the nodes of a cluster cannot be found out within twice the patience, the
// last error says so; in the second case the nodes are those that were known before, if any.
func (s *Survey) Reach(ctx context.Context, patience time.Duration) (up []Node, down []*NodeError, err error) {
	nodes, err := s.nodesWithin(ctx, 2*patience) // a node that is asked who the masters are may be the one that is stopped
	if err != nil && len(nodes) == 0 {
		s.mu.Lock()
		nodes = s.known
		s.mu.Unlock()
	}
	if len(nodes) == 0 || ctx.Err() != nil {
		return nil, nil, err
	}
	up, down = Answering(ctx, nodes, patience)
	return up, down, err
}

func (s *Survey) nodesWithin(ctx context.Context, patience time.Duration) ([]Node, error) {
	type found struct {
		nodes []Node
		err   error
	}
	f, err := Within(ctx, patience, func(ctx context.Context) (found, error) {
		nodes, err := s.Nodes(ctx)
		if len(nodes) > 0 {
			return found{nodes, err}, nil
		}
		return found{}, err
	})
	if err == nil {
		err = f.err
	}
	return f.nodes, err
}

// Answering is [Survey.Reach] for nodes that are known.
func Answering(ctx context.Context, nodes []Node, patience time.Duration) (up []Node, down []*NodeError) {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() {
			_, errs[i] = Within(ctx, patience, func(ctx context.Context) (string, error) {
				p := node.Client.Pipeline()
				ping := p.Ping(ctx)
				if _, err := send(ctx, p); err != nil {
					return "", err
				}
				return ping.Result()
			})
		})
	}
	all.Wait()
	for i, node := range nodes {
		if errs[i] == nil {
			up = append(up, node)
		} else {
			down = append(down, &NodeError{node.Addr, errs[i]})
		}
	}
	return up, down
}

// Within calls f with a context that ends after patience, and does not wait for f after that. If there was no reply in
// time, the error says so.
func Within[T any](ctx context.Context, patience time.Duration, f func(context.Context) (T, error)) (T, error) {
	within, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no reply within %v", patience))
	defer cancel()
	v, err := dispatch.Leavable(within, func() (T, error) { return f(within) })
	var network net.Error
	if err == nil || within.Err() == nil && !(errors.As(err, &network) && network.Timeout()) {
		return v, err
	}
	select {
	case <-within.Done(): // it ends within a moment, if its client has not given up before
		err = context.Cause(within)
	case <-time.After(50 * time.Millisecond):
	}
	return v, err
}

// Unreachable reports whether err says that a server did not reply, rather than what it replied.
func Unreachable(err error) bool {
	var reply redis.Error
	var network net.Error
	var file *fs.PathError // of the output, for instance; it has the methods of a net.Error
	return err != nil && !errors.As(err, &reply) && !errors.As(err, &file) && (errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded))
}

// Divided reports whether the keys are spread over the slots of a cluster.
func (s *Survey) Divided() bool {
	_, ok := s.rdb.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	})
	return ok
}

// node returns a client of the server that holds a key. A ring sends the keys of a shard that is down elsewhere, where
// nothing is known of them; node returns an error instead.
func (s *Survey) node(ctx context.Context, key string) (redis.UniversalClient, error) {
	n, err := dispatch.Node(ctx, s.sender, key)
	if err != nil {
		return nil, err
	}
	if rdb, ok := n.(redis.UniversalClient); ok {
		return rdb, nil
	}
	return s.rdb, nil
}

// fromMasters returns a pipeline that the client of a cluster sends to masters, also if it may send what only reads to replicas,
// which lag behind: it does so only if all commands of a pipeline do, and TIME is none of them.
func fromMasters(ctx context.Context, rdb redis.UniversalClient) redis.Pipeliner {
	p := rdb.Pipeline()
	p.Time(ctx)
	return p
}

// exec sends what is in the pipeline. What the node does not have, because its slot is on its way to another, is sent once more by
// the client of the whole cluster, which follows it. The error is that of [send].
func (s *Survey) exec(ctx context.Context, p redis.Pipeliner) error {
	cmds, err := send(ctx, p)
	again := fromMasters(ctx, s.rdb)
	for _, c := range cmds {
		if moved(c.Err()) {
			_ = again.Process(ctx, c)
		}
	}
	if err == nil && again.Len() > 1 {
		_, err = send(ctx, again)
	}
	return err
}

// send sends what is in the pipeline. The error is that of the connection or the context; errors that are replies stay with
// their commands.
func send(ctx context.Context, p redis.Pipeliner) (cmds []redis.Cmder, err error) {
	if p.Len() == 0 {
		return nil, ctx.Err()
	}
	cmds, err = dispatch.Leavable(ctx, func() ([]redis.Cmder, error) { return p.Exec(ctx) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, c := range cmds { // the client of a cluster returns the first error, which may be a reply while another node is lost
		var reply redis.Error
		if failure := c.Err(); failure != nil && !errors.As(failure, &reply) {
			return nil, failure
		}
	}
	var reply redis.Error
	if err == nil || errors.As(err, &reply) {
		return cmds, nil
	}
	return nil, err
}

// moved reports whether a command has to be sent to another node of the cluster.
func moved(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ") || strings.HasPrefix(text, "TRYAGAIN")
}

// suffixOf splits the key of a limiter's state into the limiter's name and the client's id. It reports false for a
// key that is not such a key. A name in braces stands for two names, with the braces and without them, whose keys
// are the same; suffixOf returns the one without.
func suffixOf(key string) (name, client string, ok bool) {
	if inner, ok := strings.CutPrefix(key, "{"); ok {
		for i := range len(inner) {
			if inner[i] == '{' {
				break
			}
			if client, ok := afterSuffix(inner[i:], "}:"); ok && i > 0 {
				return inner[:i], client, true
			}
		}
	}
	for i := range len(key) {
		if client, ok := afterSuffix(key[i:], ":"); ok && strings.Contains(key[:i], "{") {
			return key[:i], client, true
		}
	}
	return "", "", false
}

// afterSuffix returns the client's id in the rest of a key that begins with separator and the suffix of a limiter's
// key. The id is empty for a key that all clients share.
func afterSuffix(rest, separator string) (client string, ok bool) {
	if rest, ok = strings.CutPrefix(rest, separator); !ok {
		return "", false
	}
	for _, suffix := range []string{"value", "permits"} {
		if rest == suffix {
			return "", true
		}
		if client, ok := strings.CutPrefix(rest, suffix+":"); ok {
			return client, true
		}
	}
	return "", false
}

// text returns a reply as a string. It reports false for nil and for errors.
func text(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok
}

// Client returns the client that the Survey reads with.
func (s *Survey) Client() redis.UniversalClient { return s.rdb }
