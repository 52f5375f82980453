// SPDX-License-Identifier: Apache-2.0

package platform_test

import (
	"fmt"
	"time"

	"github.com/goredisson/ratelimiter/httplimit/platform"
)

// An application that bought a hundred calls a second of each API, behind one address that it shares with others.
func ExampleDingTalk() {
	profile := platform.DingTalk("ding-app-key",
		platform.WithRate(platform.ScopeAppAPI, 100, time.Second),
		platform.WithEgress("nat-1"),
	)
	fmt.Println(profile.Name) // for httplimit.WithProfile
	// Output: dingtalk
}
