package ratelimiter

import (
	_ "embed"

	"github.com/goredisson/ratelimiter/internal/redisson"
)

var (
	//go:embed scripts/acquire.lua
	acquireSrc string
	//go:embed scripts/acquire_all.lua
	acquireAllSrc string
	//go:embed scripts/audit.lua
	auditSrc string
	//go:embed scripts/available.lua
	availableSrc string
	//go:embed scripts/give_back.lua
	giveBackSrc string
	//go:embed scripts/release.lua
	releaseSrc string
	//go:embed scripts/reserve.lua
	reserveSrc string
	//go:embed scripts/try_set_rate.lua
	trySetRateSrc string
	//go:embed scripts/set_rate.lua
	setRateSrc string
	//go:embed scripts/trim.lua
	trimSrc string
	//go:embed scripts/expire.lua
	expireSrc string
	//go:embed scripts/clear_expire.lua
	clearExpireSrc string
	//go:embed scripts/expire_time.lua
	expireTimeSrc string
	//go:embed scripts/delete.lua
	deleteSrc string
	//go:embed scripts/cool_down.lua
	coolDownSrc string
	//go:embed scripts/cool_down_until.lua
	coolDownUntilSrc string
	//go:embed scripts/lift_cool_down.lua
	liftCoolDownSrc string
	//go:embed scripts/inspect.lua
	inspectSrc string
)

// scripts holds all scripts that this package sends, each with the number of its keys and arguments. Package
// redisson knows what they are, and the header of each script documents them; TestScriptHeaders checks that the
// three agree.
var scripts = redisson.Scripts{
	Acquire:       redisson.NewScript("acquire", acquireSrc, 3, 10, redisson.ResendAsReplay).LetOut(5).Tells(redisson.AcquiredAt),
	AcquireAll:    redisson.NewScript("acquire_all", acquireAllSrc, 3*redisson.JointParts, 4+redisson.JointParts, redisson.ResendAsReplay).Takes(100),
	Audit:         redisson.NewScript("audit", auditSrc, 3, 6, redisson.ResendAlways).Alone(),
	Available:     redisson.NewScript("available", availableSrc, 3, 5, redisson.ResendAlways).Alone(),
	GiveBack:      redisson.NewScript("give_back", giveBackSrc, 3, 4, redisson.ResendAlways),
	Release:       redisson.NewScript("release", releaseSrc, 3, 4, redisson.ResendUnsent).Alone(),
	Reserve:       redisson.NewScript("reserve", reserveSrc, 4, 9, redisson.ResendAsReplay).Takes(30),
	TrySetRate:    redisson.NewScript("try_set_rate", trySetRateSrc, 1, 5, redisson.ResendUnsent).Alone(),
	SetRate:       redisson.NewScript("set_rate", setRateSrc, 5, 7, redisson.ResendUnsent).Alone(),
	Trim:          redisson.NewScript("trim", trimSrc, 3, 6, redisson.ResendAlways).Alone(),
	Expire:        redisson.NewScript("expire", expireSrc, 5, 3, redisson.ResendUnsent).Alone(),
	ClearExpire:   redisson.NewScript("clear_expire", clearExpireSrc, 5, 0, redisson.ResendUnsent).Alone(),
	ExpireTime:    redisson.NewScript("expire_time", expireTimeSrc, 1, 0, redisson.ResendAlways).Alone(),
	Delete:        redisson.NewScript("delete", deleteSrc, 5, 0, redisson.ResendUnsent).Alone(),
	CoolDown:      redisson.NewScript("cool_down", coolDownSrc, 3, 6, redisson.ResendAlways).Alone(),
	CoolDownUntil: redisson.NewScript("cool_down_until", coolDownUntilSrc, 1, 1, redisson.ResendAlways).Alone(),
	LiftCoolDown:  redisson.NewScript("lift_cool_down", liftCoolDownSrc, 3, 2, redisson.ResendAlways).Alone(),
	Inspect:       redisson.NewScript("inspect", inspectSrc, 3, 3, redisson.ResendAlways).Alone(),
}
