package limit

import (
	"fmt"
	"regexp"
	"strings"
)

var literalKey = regexp.MustCompile(`^'[A-Z]+', KEYS\[\d\][,)]`)

// wellMannered says what keeps a script from a cluster, from a proxy that wants literal keys, or from
// Redis 5: keys that are not told in KEYS, above all. A script's own key for the time beside the tokens
// is in no slot that the caller has promised.
func wellMannered(src string) error {
	for i, line := range strings.Split(src, "\n") {
		for _, call := range strings.Split(line, "redis.call(")[1:] {
			if !strings.HasPrefix(call, "'TIME'") && !literalKey.MatchString(call) {
				return fmt.Errorf("line %d: the key is not literally KEYS[n]: %s", i+1, call)
			}
		}
	}
	for _, no := range []string{"struct.", "cjson", "cmsgpack", "unpack(", "pcall", "tostring("} {
		if strings.Contains(src, no) {
			return fmt.Errorf("it uses %s", no)
		}
	}
	return nil
}
