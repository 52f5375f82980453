// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// An explanation says what the findings of a check mean, what they do to callers, and what to do about them in general,
// which is for docs/findings.md: a Finding has the command.
type explanation struct{ Means, Java, Go, Fix string }

//go:embed explanations.json
var explanationsFile []byte

// explanations returns one entry for each check. RRL_TEST_DOCS=write go test -run Explanations writes them into docs/findings.md.
var explanations = sync.OnceValue(func() (of map[string]explanation) {
	if err := json.Unmarshal(explanationsFile, &of); err != nil {
		panic(err) // it is embedded
	}
	return of
})

// finding returns a finding of a check.
func finding(check string, s Severity, found, fix Text) Finding {
	e := explanations()[check]
	f := Finding{Check: check, Severity: s, Found: found.String(), Means: e.Means, Java: e.Java, Go: e.Go, FoundText: found}
	f.advise(fix)
	return f
}

// advise sets what is to be done about a finding.
func (f *Finding) advise(fix Text) {
	f.Fix, f.FixText = fix.String(), fix
	f.Commands, f.Then, f.Alternatives = fix.plan()
}

// Checks returns the ids of all checks.
func Checks() []string { return slices.Collect(maps.Keys(explanations())) }
