// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A queue is a stream with one consumer group. A job stays in the stream until done removes it; its delivery
// only assigns it to a consumer. So every job is done at least once, whichever process dies, and one whose
// worker died after the work and before done is done twice. The work must allow for that.
type queue struct {
	rdb           redis.UniversalClient
	stream, group string
	// abandoned is the time after which a job that was taken and is not done goes to another consumer.
	abandoned time.Duration
	// block bounds how long take waits for a job. A command in flight does not end with its context, so it
	// also bounds how long it takes a worker to end.
	block time.Duration
}

// A job is one entry of the stream.
type job struct {
	ID      string
	Payload string
	// Again reports whether another worker had taken the job before and did not finish it.
	Again bool
}

// create creates the stream and its group, unless they exist.
func (q *queue) create(ctx context.Context) error {
	err := q.rdb.XGroupCreateMkStream(ctx, q.stream, q.group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	return err
}

func (q *queue) add(ctx context.Context, payload string) error {
	return q.rdb.XAdd(ctx, &redis.XAddArgs{Stream: q.stream, Values: []string{"payload", payload}}).Err()
}

// left returns the number of jobs that are not done.
func (q *queue) left(ctx context.Context) (int64, error) { return q.rdb.XLen(ctx, q.stream).Result() }

// done removes a job, in one transaction: an entry that is acknowledged and still in the stream would count
// as left and never be delivered.
func (q *queue) done(ctx context.Context, j *job) error {
	_, err := q.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, q.stream, q.group, j.ID)
		p.XDel(ctx, q.stream, j.ID)
		return nil
	})
	return err
}

// A consumer takes jobs from a queue, for one worker.
type consumer struct {
	*queue
	name   string
	cursor string // of XAUTOCLAIM, which scans a few jobs a call
}

// take returns the next job: an abandoned one if there is any, or else a new one. It returns nil if there is
// none within block.
func (c *consumer) take(ctx context.Context) (*job, error) {
	if c.cursor == "" {
		c.cursor = "0-0"
	}
	left, cursor, err := c.rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: c.stream, Group: c.group, Consumer: c.name, MinIdle: c.abandoned, Start: c.cursor, Count: 1,
	}).Result()
	if err != nil {
		return nil, err
	}
	c.cursor = cursor
	if len(left) > 0 {
		return newJob(left[0], true), nil
	}
	streams, err := c.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: c.group, Consumer: c.name, Streams: []string{c.stream, ">"}, Count: 1, Block: c.block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newJob(streams[0].Messages[0], false), nil
}

func newJob(m redis.XMessage, again bool) *job {
	payload, _ := m.Values["payload"].(string)
	return &job{ID: m.ID, Payload: payload, Again: again}
}
