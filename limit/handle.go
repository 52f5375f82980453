// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"strings"

	"github.com/goredisson/ratelimiter/limit/internal/calls"
)

// For returns the limiter of one key, such as a user, an address or a tenant. Each key has its own
// permits, in one Redis key, or two of one hash slot ([SlidingLog]). The empty key is that of the limiter that [NewShared] returns.
// Any text is a key. For is meant to be called for each request: it sends nothing, and allocates nothing for a key that was
// asked for recently, of which a limiter remembers 4,096.
func (s *Shared) For(key string) *Shared {
	if !s.made() || s.err != nil {
		return s
	}
	return s.config.handle(key, s.calls.Own)
}

// With returns a handle of the limiter of the same name and key whose calls are decided by the rate and the burst of a, for
// tenants that have rates of their own:
//
//	paid := limit.GCRA{Rate: ratelimiter.PerSecond(100), Burst: 200}
//	result, err := api.For(userID).With(paid).Allow(ctx, 1)
//	if err != nil {
//		return err
//	}
//	fmt.Println(result.Granted, result.Available)
//
// All such handles of a key count together, whatever their parameters, but not with calls without With. What a key was granted flows out
// at the rate of its last grant, until a handle with another rate is granted permits of it. Handles that are used in turns are granted no
// more together than one would be that has the largest of their bursts and the largest of their rates; a rejection changes nothing. A
// [Grant] gives nothing back when it is settled after a grant at another rate.
// Where calls of one key alternate between rates, what is known of a rejection by one may reject up to a second longer than
// what the other has left requires.
//
// The limiter and a have to be a [GCRA] or a [TokenBucket], without [WithFleetParameters], which sets the parameters of all
// keys. Otherwise, and if a parameter of a is out of its range, every call of the handle returns ratelimiter.ErrInvalidArgument.
func (s *Shared) With(a Algorithm) *Shared {
	if !s.made() || s.err != nil {
		return s
	}
	n, err := s.config.settingOf(a)
	if err != nil {
		return &Shared{config: s.config, calls: s.calls, err: err}
	}
	return s.config.handle(s.calls.Key, n)
}

// A handleKey is what a handle is of.
type handleKey struct {
	key string
	own *calls.Setting
}

// handle returns the handle of a key and a setting of With, which may be nil.
func (c *config) handle(key string, own *calls.Setting) *Shared {
	if s, ok := c.handles.Get(handleKey{key, own}); ok {
		return s
	}
	key = strings.Clone(key)
	s := &Shared{config: c}
	if own == nil {
		s.calls = c.Of(key)
	} else {
		s.calls = c.With(key, own, stateName(gcraScript)+":each", signature(own))
	}
	if !s.calls.Remembered() {
		return s
	}
	return c.handles.Add(handleKey{key, own}, s)
}

// settingOf returns the setting of a for With.
func (c *config) settingOf(a Algorithm) (*calls.Setting, error) {
	g, ok := asGCRA(pointee(a))
	if _, also := asGCRA(c.Now().Algorithm.(Algorithm)); !ok || !also {
		return nil, calls.Invalid("With: %q is a %T, and this is a %T; both have to be a GCRA or a TokenBucket", c.Name, c.Now().Algorithm, a)
	}
	if c.fleet != nil {
		return nil, calls.Invalid("With: WithFleetParameters sets the parameters of all keys of %q", c.Name)
	}
	if n, ok := c.settings.Get(g); ok {
		return n, nil
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return c.settings.Add(g, newSetting(g)), nil
}

// asGCRA returns the GCRA that a is, by that name or as a TokenBucket.
func asGCRA(a Algorithm) (GCRA, bool) {
	switch a := a.(type) {
	case GCRA:
		return a, true
	case TokenBucket:
		return GCRA(a), true
	}
	return GCRA{}, false
}
