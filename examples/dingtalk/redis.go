// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newRedis returns a client of the Redis at a URL: redis://USER@HOST:PORT/DB, or rediss:// for TLS; HOST:PORT does, too. A
// password in the URL of a flag is seen by everybody who may list the processes, so it is better given by REDIS_URL or
// REDIS_PASSWORD. For a server whose certificate is signed by an authority of your own, SSL_CERT_FILE names the file with
// the certificate of that authority.
func newRedis(raw string) (*redis.Client, error) {
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	o, err := redis.ParseURL(raw)
	if err != nil { // which may have parts of the password
		return nil, errors.New("the URL of the Redis cannot be parsed; it looks like redis://USER:PASSWORD@HOST:PORT/DB, with %2F for a / in the password")
	}
	if password := os.Getenv("REDIS_PASSWORD"); password != "" {
		o.Password = password
	}
	// The embedded Redis knows neither CLIENT SETINFO nor CLIENT MAINT_NOTIFICATIONS. For a real one leave these out.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

// embedded starts a Redis inside this process, so that the example needs nothing but Go. A program has none.
func embedded() (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // its keys expire by themselves
	return m, m.Start()
}
