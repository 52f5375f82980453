// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"

	"github.com/goredisson/ratelimiter/wire"
)

// A member in the format of Redisson 3.13.3: four random bytes, and how many permits were taken.
func ExampleParseMember() {
	member, err := wire.ParseMember([]byte{0xde, 0xad, 0xbe, 0xef, 5, 0, 0, 0})
	fmt.Println(member.Permits, member.Layout(), err)
	// Output: 5 fI/8 <nil>
}

// The members of a limiter that Java and Go share, by who wrote them.
func ExampleState() {
	list := func(state wire.State) {
		for _, m := range state.Members {
			if m.Format == wire.FormatUnknown {
				fmt.Printf("no grant: %x\n", m.Raw)
				continue
			}
			fmt.Println(m.Permits, "taken by", m.Layout().Writers())
		}
		if state.Layouts[wire.LayoutFI] > 0 && len(state.Formats) > 1 {
			fmt.Println("old and new versions of Redisson meet")
		}
	}
	list(wire.State{Members: []wire.StoredMember{{Raw: []byte{1, 2}}}}) // as Admin.Inspect returns it
	// Output: no grant: 0102
}
