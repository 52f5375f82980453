// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"github.com/goredisson/ratelimiter/httplimit"
)

// The scopes of the detectors and profiles here.
const (
	ScopeAppAPI      httplimit.Scope = "app-api"     // one application, one API
	ScopeCorpAPI     httplimit.Scope = "corp-api"    // one organisation, one API
	ScopeAPI         httplimit.Scope = "api"         // one API, whoever calls it
	ScopeIP          httplimit.Scope = "ip"          // one address, all APIs
	ScopeRobot       httplimit.Scope = "robot"       // one robot's webhook
	ScopeMonth       httplimit.Scope = "month"       // a quota of the calendar month
	ScopeDay         httplimit.Scope = "day"         // a quota of the day
	ScopeAccount     httplimit.Scope = "account"     // one user or token, all APIs
	ScopeTokens      httplimit.Scope = "tokens"      // the tokens of language models
	ScopeSecondary   httplimit.Scope = "secondary"   // GitHub's secondary limits
	ScopeContent     httplimit.Scope = "content"     // GitHub's limit of what creates content
	ScopeConcurrency httplimit.Scope = "concurrency" // requests at the same time; no wait is known to help
)
