// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	"github.com/goredisson/ratelimiter/internal/survey"
)

// ours reports whether anything in the keys shows that they are a limiter's. A name alone shows nothing.
func (p *patient) ours() bool {
	return p.main.HashShows() || p.main.GrantsShow() || slices.ContainsFunc(p.clients, (*survey.State).GrantsShow)
}

// leaveOut forgets the clients whose keys show nothing of a client of a limiter.
func (p *patient) leaveOut() {
	p.clients = slices.DeleteFunc(slices.Clone(p.clients), func(st *survey.State) bool { return !st.Shows() })
}

// notOurs takes the commands out of what was found of keys that nothing shows to be a limiter's, because they may well be
// another program's. Calls of a limiter of that name fail all the same.
func (p *patient) notOurs(list []Finding) []Finding {
	for i := range list {
		fix := say("it looks like none of ours: nothing in the data shows a limiter; find out who writes to %q", p.name)
		list[i].Severity, list[i].Fix, list[i].FixText, list[i].Commands = min(Warning, list[i].Severity), fix.String(), fix, nil
	}
	return list
}
