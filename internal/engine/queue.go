// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/heap"

	"github.com/goredisson/ratelimiter/internal/outage"
)

// A queue is a list of requests in the order in which they came. The lock of the shard guards it, and the fields of
// its requests that link them.
type queue struct {
	first, last *request
	n           int
	policies    int       // requests that have an outage policy
	quotas      int       // requests whose policy is a local quota
	yields      int       // requests that leave when an outage begins
	deadlines   deadlines // of the requests that watch has been called for
}

// A node is the position of a request.
type node struct {
	prev, next *request
	queue      *queue
	watched    int // its place among the deadlines of the queue, counted from 1; 0 for none
}

func (q *queue) push(r *request) {
	r.queue, r.prev = q, q.last
	if q.last == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.count(r, 1)
}

// insert puts r at its place by the time at which its caller came, and before requests that came at the same instant:
// a request that has had its turn is the first again. It searches for the place from both ends.
func (q *queue) insert(r *request) {
	before, after := q.first, q.last // requests that may be the next ones to r
	for before != nil && before.came.Before(r.came) && !after.came.Before(r.came) {
		before, after = before.next, after.prev
	}
	if before != nil && before.came.Before(r.came) { // the place is behind after
		before = after.next
	}
	if before == nil {
		q.push(r)
		return
	}
	r.queue, r.prev, r.next = q, before.prev, before
	if before.prev == nil {
		q.first = r
	} else {
		before.prev.next = r
	}
	before.prev = r
	q.count(r, 1)
}

// unqueueLocked removes r from its queue, if it stands in one. That ends the gathering of its permits.
func (r *request) unqueueLocked() {
	q := r.queue
	if q == nil {
		return
	}
	if r.prev == nil {
		q.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	if r.gathers != nil {
		r.stopGatheringLocked()
	}
	if r.watched > 0 {
		heap.Remove(&q.deadlines, r.watched-1)
	}
	r.prev, r.next, r.queue = nil, nil, nil
	q.count(r, -1)
}

func (q *queue) count(r *request, n int) {
	q.n += n
	if r.want.Policy != nil {
		q.policies += n
		if r.want.Policy.Kind == outage.LocalQuota {
			q.quotas += n
		}
	}
	if r.want.Yields {
		q.yields += n
	}
}

// watch makes earliest consider r, which has a deadline and stands in q.
func (q *queue) watch(r *request) { heap.Push(&q.deadlines, r) }

// earliest returns the watched request with the earliest deadline, or nil.
func (q *queue) earliest() *request {
	if len(q.deadlines) == 0 {
		return nil
	}
	return q.deadlines[0]
}

// A deadlines is a heap of requests by deadline. It finds requests whose time is up without looking at the others.
type deadlines []*request

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline().Before(d[j].deadline()) }

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].watched, d[j].watched = i+1, j+1
}

func (d *deadlines) Push(r any) {
	*d = append(*d, r.(*request))
	r.(*request).watched = len(*d)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	r.watched = 0
	return r
}
