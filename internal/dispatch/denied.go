// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Denied reports whether err is the reply of a server whose ACL does not let the user of the connection run a command
// or use a key. For a command in a script, the text differs between versions of Redis.
func Denied(err error) bool {
	var re redis.Error
	if !errors.As(err, &re) {
		return false
	}
	for _, part := range []string{"NOPERM", "ACL failure in script", "The user executing the script can't"} {
		if strings.Contains(re.Error(), part) {
			return true
		}
	}
	return false
}

// Naming returns err together with what was sent, because Redis often does not say which key it denies. It returns
// errors of other kinds unchanged.
func Naming(err error, what string, keys []any) error {
	if err == nil || !Denied(err) {
		return err
	}
	return fmt.Errorf("%w: %s on the keys %q", err, what, keys)
}
