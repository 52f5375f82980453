// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// TestReloadsPinNoOldRules: once SetRules has returned, and the requests that had begun have ended, nothing holds the rules
// of before, although the Transport still knows the limiters that they named, and one of them is banned.
func TestReloadsPinNoOldRules(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var old []weak.Pointer[ruleSet]
		tr := w.transport(base(ok))
		for reload := range 20 {
			host := fmt.Sprint("host", reload)
			limit := w.limit(host, 5, time.Minute)
			require.NoError(t, tr.SetRules(Rule{Match: Match{Hosts: []string{host}}, Limits: []Limit{limit}, Detectors: []Detector{says("", 0, "")}}))
			get(t, tr, "http://"+host+"/")
			if reload == 0 {
				tr.limiters.keep(tr.limiters.young[limit.Name])
			}
			old = append(old, weak.Make(tr.set.Load()))
		}
		runtime.GC()
		pinned := 0
		for _, set := range old[:len(old)-1] {
			if set.Value() != nil {
				pinned++
			}
		}
		require.Zero(t, pinned, "of %d old sets", len(old)-1)
		require.Len(t, tr.limiters.young, len(old))
	})
}
