// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"reflect"
	"strings"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

// newScripts returns the scripts of package ratelimiter, each as mutate returns it. A test imports that package to load
// them.
func newScripts(mutate func(name, text string) string) *redisson.Scripts {
	s := new(redisson.Scripts)
	for _, loaded := range dispatch.Loaded() {
		field := ""
		for word := range strings.SplitSeq(loaded.Name, "_") {
			field += strings.ToUpper(word[:1]) + word[1:]
		}
		f := reflect.ValueOf(s).Elem().FieldByName(field)
		if !f.IsValid() {
			continue // of another package
		}
		n := dispatch.New(loaded.Name, mutate(loaded.Name, loaded.Src), loaded.Keys, loaded.Args)
		n.Optional = loaded.Optional
		n.Alone = true // a call that shares a round trip has a goroutine of its own
		texts.Store(n.Sha, n.Src)
		f.Set(reflect.ValueOf(redisson.NewScript(n, redisson.ResendAlways)))
	}
	return s
}
