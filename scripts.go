// SPDX-License-Identifier: Apache-2.0

package ratelimiter

import (
	"embed"

	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/redisson"
)

//go:embed scripts/*.lua scripts/shared/*.lua
var scriptFiles embed.FS

// script returns the script scripts/NAME.lua with the given number of keys and arguments.
func script(name string, keys, args int, r redisson.Resend) *redisson.Script {
	s := dispatch.Load(scriptFiles, name, keys, args)
	s.Missing = redisson.NotInitialized
	return redisson.NewScript(s, r)
}

// scripts holds all scripts that this package sends, each with the number of its keys and arguments. Package
// redisson knows what they are, and the header of each script documents them; TestScriptHeaders checks that the
// three agree.
var scripts = redisson.Scripts{
	Acquire:       script("acquire", 3, 7, redisson.ResendAsReplay).OptionalArgs(2).RepliesIntegers().WithReplyClock(redisson.AnswersAt(2)),
	AcquireRest:   script("acquire_rest", 3, 12, redisson.ResendAsReplay).OptionalArgs(7).WithReplyClock(redisson.AnswersAt(1)),
	AcquireAll:    script("acquire_all", 3*redisson.OneCallParts, 4+redisson.OneCallParts, redisson.ResendAsReplay).WithCost(100),
	Available:     script("available", 3, 5, redisson.ResendAlways).Alone(),
	GiveBack:      script("give_back", 3, 5, redisson.ResendAlways),
	Release:       script("release", 3, 4, redisson.ResendUnsent).Alone(),
	Reserve:       script("reserve", 4, 9, redisson.ResendAsReplay).WithCost(30),
	TrySetRate:    script("try_set_rate", 1, 5, redisson.ResendUnsent).Alone(),
	SetRate:       script("set_rate", 5, 7, redisson.ResendUnsent).Alone(),
	Heal:          script("heal", 3, 7, redisson.ResendAlways).OptionalArgs(3).Alone(),
	Expire:        script("expire", 5, 3, redisson.ResendUnsent).Alone(),
	ClearExpire:   script("clear_expire", 5, 0, redisson.ResendUnsent).Alone(),
	Exists:        script("exists", 1, 0, redisson.ResendAlways).Alone(),
	Rate:          script("rate", 1, 0, redisson.ResendAlways).Alone(),
	TTL:           script("ttl", 1, 0, redisson.ResendAlways).Alone(),
	ExpireTime:    script("expire_time", 1, 0, redisson.ResendAlways).Alone(),
	Delete:        script("delete", 7, 0, redisson.ResendUnsent).Alone(),
	CoolDown:      script("cool_down", 3, 6, redisson.ResendAlways).Alone(),
	CoolDownUntil: script("cool_down_until", 1, 1, redisson.ResendAlways).Alone(),
	LiftCoolDown:  script("lift_cool_down", 3, 2, redisson.ResendAlways).Alone(),
	Inspect:       script("inspect", 3, 3, redisson.ResendAlways).Alone(),
}
