// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"regexp"
	"strings"
)

var literalKey = regexp.MustCompile(`^'[A-Z]+', KEYS\[\d\][,)]`)

// wellMannered returns an error if a script cannot run in a cluster, behind a proxy that wants literal keys, or on
// Redis 5: above all if it uses a key that is not in KEYS. A second key that a script derives may be in a slot of
// another node.
func wellMannered(src string) error {
	for i, line := range strings.Split(src, "\n") {
		for _, call := range strings.Split(line, "redis.call(")[1:] {
			if !strings.HasPrefix(call, "'TIME'") && !literalKey.MatchString(call) {
				return fmt.Errorf("line %d: the key is not literally KEYS[n]: %s", i+1, call)
			}
		}
	}
	for _, no := range []string{"struct.", "cjson", "cmsgpack", "unpack(", "pcall", "tostring("} {
		if strings.Contains(src, no) {
			return fmt.Errorf("it uses %s", no)
		}
	}
	return nil
}
