// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
)

// pingTimeout bounds the PING that checks whether a Redis can be reached.
const pingTimeout = 2 * time.Second

// urlError returns err, with which a URL of a Redis could not be parsed, as wrong usage. It leaves out the URL, in
// which there may be a password.
func urlError(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	return command.UsageError{Err: fmt.Errorf("invalid Redis URL: %w; it looks like redis://127.0.0.1:6379/0", err)}
}

// checkUser returns an error if there is a user without a password, which go-redis would leave out: it would connect as
// the default user. The error does not have the name of the user, since somebody may have written a password in its
// place.
func checkUser(user, password string) error {
	if user == "" || password != "" {
		return nil
	}
	return command.UsageError{Err: errors.New("a user is given without a password: add it in the URL, as in redis://USER:PASSWORD@HOST:PORT, or set REDIS_PASSWORD " +
		"(for a user with nopass any will do; a password alone is redis://:PASSWORD@HOST:PORT)")}
}
