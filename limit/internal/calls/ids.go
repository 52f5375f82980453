// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
)

// ids makes the ids of calls: ";", 8 characters that are random, and 6 digits that grow from call to call. Of
// each sequence of ids the scripts remember the last one that was granted permits. That is enough, because a
// process makes one call of a key at a time: when it makes the next, it has a reply to the last or has given it up, and an
// attempt at that which is still on its way does not run after the next.
//
// The zero value is ready for use.
type ids struct {
	mu     sync.Mutex
	Random string
	Next   int
}

// idsOfASequence is how many ids begin alike. What an ended sequence leaves in Redis is dropped as that of a
// process which has ended.
const idsOfASequence = 1_000_000

// The scripts do not store an id that is to be forgotten, which is a character shorter and begins with "-".
func (i *ids) id(forget bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Random == "" || i.Next == idsOfASequence {
		bits := binary.NativeEndian.AppendUint64(nil, rand.Uint64())
		i.Random, i.Next = ";"+base64.RawURLEncoding.EncodeToString(bits[:6]), 0
	}
	text := append(make([]byte, 0, 16), i.Random...)
	for unit := idsOfASequence / 10; unit > 0; unit /= 10 {
		text = append(text, byte('0'+i.Next/unit%10))
	}
	i.Next++
	if forget {
		text = append(text[:0], text[1:]...)
		text[0] = '-'
	}
	return string(text)
}

// forgotten reports whether the scripts do not store the id of a call that takes something.
func forgotten(id string) bool { return strings.HasPrefix(id, "-") }

// anew begins another sequence if id is of the current one, which another process uses as well: both are copies
// of one virtual machine.
func (i *ids) anew(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Random == id[:len(i.Random)] {
		i.Random = ""
	}
}
