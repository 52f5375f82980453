// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"strings"

	"github.com/goredisson/ratelimiter/internal/redistest"
)

// wellMannered returns an error if a script cannot run in a cluster, behind a proxy that wants literal keys, or on
// Redis 5: above all if it uses a key that is not in KEYS.
func wellMannered(src string) error {
	if err := redistest.LiteralKeys(src); err != nil {
		return err
	}
	for _, no := range []string{"struct.", "cjson", "cmsgpack", "unpack(", "pcall", "tostring("} {
		if strings.Contains(src, no) {
			return fmt.Errorf("it uses %s", no)
		}
	}
	return nil
}
