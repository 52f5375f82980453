package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that is printed has to run as it stands, also for a name that looks like a flag.
func TestCommand(t *testing.T) {
	for want, got := range map[string]string{
		"rrl heal a --write":     Command("heal", []string{"a"}, "--write"),
		"rrl heal 'a b'":         Command("heal", []string{"a b"}),
		"rrl heal --write -- -a": Command("heal", []string{"-a"}, "--write"),
		"rrl peek -- --a 1":      Command("peek", []string{"--a", "1"}),
	} {
		require.Equal(t, want, got)
	}
	p := &patient{name: "-a"}
	require.Equal(t, "rrl set-rate --permits N --interval D --write -- -a", p.rrl("set-rate", "--permits N", "--interval D", "--write"))
}
