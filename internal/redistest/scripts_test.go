package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharedBlocksTellsWhatIsWrong(t *testing.T) {
	const a = "-- [n]\nlocal n = 1\n-- [end]\n"
	for name, c := range map[string]struct{ a, b, err string }{
		"the same":          {a, "x()\n" + a, ""},
		"further in":        {a, "do\n  -- [n]\n  local n = 1\n  -- [end]\nend\n", ""},
		"twice in a script": {a + a, "", ""},
		"none":              {"x()", "", ""},
		"changed":           {a, "\n-- [n]\nlocal n = 2\n-- [end]\n", `b:2: the block "n" is not that of a:1`},
		"a line is missing": {a, "-- [n]\n-- [end]\n", `b:1: the block "n" is not that of a:1`},
		"further in inside": {a, "-- [n]\n  local n = 1\n-- [end]\n", `b:1: the block "n" is not that of a:1`},
		"left of it":        {a, "  -- [n]\nlocal n = 1\n  -- [end]\n", `b:2: the line stands left of the block "n"`},
		"alone":             {a, "", `a:1: the block "n" stands nowhere else`},
		"open":              {a, "-- [n]\nlocal n = 1\n", `b:1: the block "n" has no end`},
		"in another":        {a, "-- [m]\n" + a, `b:2: the block "n" begins in the block "m" of b:1`},
		"ends twice":        {a, a + "-- [end]\n", "b:4: the end of no block"},
		"no name":           {a, "-- []\n-- [end]\n", "b:1: a block without a name"},
	} {
		t.Run(name, func(t *testing.T) {
			err := sharedBlocks(map[string]string{"a": c.a, "b": c.b})
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}
