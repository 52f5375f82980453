// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// KeptBody is how many bytes of a request's body a Gateway keeps until the response begins. It sends them again if
// net/http sends the request again, because the platform closed the connection, or if httplimit.WithRetry is set. If more of a body has been sent, the Gateway keeps none of it and sends the request only once.
const KeptBody = 1 << 20

var (
	errBodySent   = errors.New("gateway: more of the request's body has been sent than is kept to be sent again (1 MiB)")
	errBodyClosed = errors.New("gateway: read on closed request body")
)

// keptBodies are the bodies of the attempts to send one request. Each first reads what earlier ones have read of the
// client's body, and goes on from there. They stream: nothing is read before it is asked for, except by readAhead.
type keptBodies struct {
	source io.Reader

	mu      sync.Mutex
	more    sync.Cond
	kept    []byte // of the source, from its start
	lost    bool   // kept is not all that was read: there is no other body
	last    *keptBody
	reading bool  // from the source, by one of the bodies
	err     error // that ended the source
}

// A keptBody is one of them.
type keptBody struct {
	all    *keptBodies
	off    int // how much of all.kept it has had
	closed bool
}

// keepBody makes it possible to send the body of a request again, and returns the state that it keeps. It returns nil
// if there is no body, or if the body is known to be too large.
func keepBody(r *http.Request) *keptBodies {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > KeptBody {
		return nil
	}
	k := &keptBodies{source: r.Body}
	k.more.L = &k.mu
	k.last = &keptBody{all: k}
	r.Body, r.GetBody = k.last, k.again
	return k
}

// readAhead reads the client's body while the request waits, if it is no longer than aheadMost, and returns the error of the body. Over HTTP/1
// a server sees only after the body whether the client leaves. Over HTTP/2 what is not read takes room from the other requests of the
// connection.
func (k *keptBodies) readAhead(waits func() bool) error {
	p := make([]byte, 8<<10)
	k.mu.Lock()
	defer k.mu.Unlock()
	for waits() && !k.lost && k.err == nil && len(k.kept) <= aheadMost {
		if k.reading {
			k.more.Wait()
			continue
		}
		n, _ := k.read(p) // the error is in k
		k.kept = append(k.kept, p[:n]...)
	}
	return k.err
}

// read reads from the source, without the lock.
func (k *keptBodies) read(p []byte) (int, error) {
	k.reading = true
	k.mu.Unlock()
	n, err := k.source.Read(p)
	k.mu.Lock()
	k.reading, k.err = false, err
	k.more.Broadcast()
	return n, err
}

// again returns a new body, which replaces the last one.
func (k *keptBodies) again() (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost {
		return nil, errBodySent
	}
	k.last.closed = true
	k.more.Broadcast()
	k.last = &keptBody{all: k}
	return k.last, nil
}

// forget stops keeping the body, except for the part that the last attempt has yet to read.
func (k *keptBodies) forget() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = true
	k.drop(k.last)
}

// drop drops what b has read, if no other attempt needs it.
func (k *keptBodies) drop(b *keptBody) {
	if k.lost && b == k.last {
		k.kept, b.off = k.kept[b.off:], 0
		if len(k.kept) == 0 {
			k.kept = nil
		}
	}
}

// Read is that of io.Reader.
func (b *keptBody) Read(p []byte) (int, error) {
	k := b.all
	k.mu.Lock()
	defer k.mu.Unlock()
	for !b.closed && b.off == len(k.kept) && k.reading {
		k.more.Wait()
	}
	switch {
	case b.closed:
		return 0, errBodyClosed
	case b.off < len(k.kept):
		n := copy(p, k.kept[b.off:])
		b.off += n
		k.drop(b)
		return n, nil
	case k.err != nil || len(p) == 0:
		return 0, k.err
	}
	n, err := k.read(p)
	if k.lost && b == k.last {
		return n, err
	}
	k.kept = append(k.kept, p[:n]...) // however much that is, if b is no longer the last: that one needs it
	b.off += n
	if k.lost = k.lost || len(k.kept) > KeptBody && b == k.last; k.lost {
		k.drop(b)
	}
	return n, err
}

// Close ends the reading of this attempt. The server closes the client's body.
func (b *keptBody) Close() error {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.closed = true
	b.all.more.Broadcast()
	return nil
}
