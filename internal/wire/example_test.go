// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"

	"github.com/goredisson/ratelimiter/internal/wire"
)

// A member in the format of Redisson 3.13.3: four random bytes, and how many permits were taken.
func ExampleParseMember() {
	member, err := wire.ParseMember([]byte{0xde, 0xad, 0xbe, 0xef, 5, 0, 0, 0})
	fmt.Println(member.Permits, member.Layout(), err)
	// Output: 5 fI/8 <nil>
}
