// SPDX-License-Identifier: Apache-2.0

package rulefile_test

import (
	"errors"
	"fmt"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
)

// A file names a detector of the program's own; an Error says where the file is wrong.
func ExampleError() {
	busy := httplimit.Signature{Status: []int{503}}
	_, err := rulefile.Parse([]byte(`
rules:
  - name: everything
    limits:
      - {name: api, permits: 0, interval: 1s}
    detectors: [busy]
`), rulefile.WithDetector("busy", busy))
	var wrong *rulefile.Error
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Line, wrong.Field)
	}
	// Output: 5 rules[0].limits[0].permits
}
