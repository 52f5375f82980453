// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRuleOfALowerClass checks that the requests of a rule with LeaveFree are sent only while other rules find permits, until
// they have waited for LeaveFreeFor, and that one which both rules match is of the lower class.
func TestRuleOfALowerClass(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		users, batch := w.limit("app", 10, time.Second), w.limit("app", 10, time.Second)
		batch.LeaveFree, batch.LeaveFreeFor = 3, 2500*time.Millisecond
		other := w.limit("other", 10, time.Second) // so that one script decides both
		tr := w.transport(base(ok), WithRules(
			Rule{Match: Match{Hosts: []string{"users", "both"}}, Limits: []Limit{users}},
			Rule{Match: Match{Hosts: []string{"batch", "both"}}, Limits: []Limit{batch, other}}))
		var all sync.WaitGroup
		send := func(host string, n int, want time.Duration) {
			for range n {
				all.Go(func() {
					get(t, tr, "http://"+host+"/")
					require.Equal(t, want, w.elapsed(), host)
				})
			}
			time.Sleep(time.Millisecond)
		}
		w.epoch = time.Now()
		send("batch", 7, 0)
		send("batch", 1, 1010*time.Millisecond) // after what users take at 1000 ms
		send("users", 3, 2*time.Millisecond)
		send("users", 6, time.Second)
		all.Wait()
		send("both", 1, 2010*time.Millisecond) // 3 are free
		all.Wait()
	})
}
