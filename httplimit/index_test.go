package httplimit

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestIndex: the index has every rule that matches a request, in the order of the rules.
func TestIndex(t *testing.T) {
	hosts := []string{"a.example.com", "A.example.com", "b.example.com", "*.example.com", "c"}
	patternHosts := []string{"", "a.example.com", "B.example.com", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var list []Rule
		for i := range rapid.IntRange(0, 8).Draw(t, "rules") {
			m := Match{Hosts: rapid.SliceOfN(rapid.SampledFrom(hosts), 0, 3).Draw(t, "hosts")}
			for range rapid.IntRange(0, 2).Draw(t, "patterns") {
				m.Patterns = append(m.Patterns, rapid.SampledFrom(patternHosts).Draw(t, "host")+rapid.SampledFrom([]string{"/", "/x", "/{y}"}).Draw(t, "path"))
			}
			list = append(list, Rule{Name: fmt.Sprint(i), Match: m, Detectors: []Detector{says("", 0, "")}})
		}
		rules, err := compileAll(list)
		if err != nil {
			t.Fatal(err)
		}
		x := newIndex(rules)
		for _, host := range []string{"a.example.com", "A.Example.com:80", "b.example.com.", "d.example.com", "c", "d", ""} {
			req, err := http.NewRequest("GET", "http://"+host+"/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			probe := newProbe(req, hostOf(req))
			matching := func(list []*rule) (names []string) {
				for _, r := range list {
					if r.matcher.matches(probe) != nil {
						names = append(names, r.Name)
					}
				}
				return names
			}
			require.Equal(t, matching(rules), matching(x.rules(probe.host)), "%s", host)
		}
	})
}
