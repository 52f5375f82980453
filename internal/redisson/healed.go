package redisson

import "github.com/goredisson/ratelimiter/internal/permit"

const (
	againAt     = 8 // of a reply of acquire_rest
	againHealed = 4 // of again: the call healed something, and healedCount numbers come last
	healedCount = 4
)

// healedOf returns what a call of acquire_rest or audit healed.
func healedOf(s *Scripts, called *Script, raw any) (h permit.Healed) {
	list, ok := raw.([]any)
	if !ok {
		return h
	}
	number := func(i int) int64 {
		n, _ := list[i].(int64)
		return max(0, n)
	}
	switch {
	case called == s.AcquireRest && len(list) > againAt+healedCount && number(againAt) >= againHealed:
		n := len(list) - healedCount
		return permit.Healed{Value: number(n), Lost: number(n + 1), Surplus: number(n + 2), Clock: number(n + 3)}
	case called == s.Audit && len(list) == 5:
		balance, _ := list[2].(int64)
		return permit.Healed{Value: number(4), Lost: max(0, -balance), Surplus: max(0, balance)}
	}
	return h
}

// withoutHealed returns a reply of acquire_rest without what was healed, which healedOf reads.
func withoutHealed(r []int64) []int64 {
	if len(r) > againAt+healedCount && r[againAt] >= againHealed {
		r[againAt] -= againHealed
		return r[:len(r)-healedCount]
	}
	return r
}
