// SPDX-License-Identifier: Apache-2.0

// Package redisurl reads the URLs by which the commands name a Redis of any kind.
package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Redis is what a URL names. One of its fields is set.
type Redis struct {
	Single   *redis.Options
	Sentinel *redis.FailoverOptions
	Cluster  *redis.ClusterOptions
}

// Parse parses a URL: those of go-redis, redis+sentinel://HOST:PORT/DB?master_name=M and redis+cluster://HOST:PORT, and rediss in place of
// redis for TLS. The error leaves out the URL, in which there may be a password, and parts of it.
func Parse(raw string) (r Redis, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return r, errors.New("it has to begin with redis:// or another scheme")
	}
	plain, kind, _ := strings.Cut(scheme, "+")
	base := plain + "://" + rest
	u, err := url.Parse(base)
	if err != nil || endsEarly(u) {
		return r, errors.New("it cannot be parsed; what a URL cannot have in a password is written as in %2F")
	}
	switch kind {
	case "sentinel":
		if r.Sentinel, err = redis.ParseFailoverURL(base); err == nil && r.Sentinel.MasterName == "" {
			err = errors.New("there is no master_name, as in redis+sentinel://HOST:26379/0?master_name=mymaster")
		}
	case "cluster":
		r.Cluster, err = redis.ParseClusterURL(base)
		if path := strings.Trim(u.Path, "/"); err == nil && path != "" && path != "0" {
			err = fmt.Errorf("a cluster has database 0 only: leave %s out of the URL", u.Path)
		}
	case "":
		r.Single, err = redis.ParseURL(raw)
	default:
		err = fmt.Errorf("the scheme %q is not known; it is redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster", scheme)
	}
	if err == nil && slices.ContainsFunc(r.addresses(), noPort) {
		err = errors.New("a port is a number from 1 to 65535")
	}
	return r, err
}

// endsEarly reports whether the host of u may be a user, whose password has a character that ends the host of a URL and is
// in what follows.
func endsEarly(u *url.URL) bool {
	if u.Fragment != "" || strings.Contains(u.Path, "@") {
		return true
	}
	for option := range u.Query() {
		if strings.Contains(option, "@") {
			return true
		}
	}
	return false
}

// addresses returns the HOST:PORT of each server or Sentinel that the URL names.
func (r Redis) addresses() []string {
	switch {
	case r.Single != nil && r.Single.Network == "unix":
		return nil
	case r.Single != nil:
		return []string{r.Single.Addr}
	case r.Sentinel != nil:
		return r.Sentinel.SentinelAddrs
	}
	return r.Cluster.Addrs
}

func noPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	n, wrong := strconv.ParseUint(port, 10, 16)
	return err != nil || wrong != nil || n == 0
}

// Login returns where the user and the password of r are kept.
func (r Redis) Login() (user, password *string) {
	switch {
	case r.Single != nil:
		return &r.Single.Username, &r.Single.Password
	case r.Sentinel != nil:
		return &r.Sentinel.Username, &r.Sentinel.Password
	}
	return &r.Cluster.Username, &r.Cluster.Password
}

// TLS returns where the configuration of TLS is kept, which is nil without.
func (r Redis) TLS() **tls.Config {
	switch {
	case r.Single != nil:
		return &r.Single.TLSConfig
	case r.Sentinel != nil:
		return &r.Sentinel.TLSConfig
	}
	return &r.Cluster.TLSConfig
}

// Client returns a client of r, which the caller closes.
func (r Redis) Client() redis.UniversalClient {
	switch {
	case r.Single != nil:
		return redis.NewClient(r.Single)
	case r.Sentinel != nil:
		return redis.NewFailoverClient(r.Sentinel)
	}
	return redis.NewClusterClient(r.Cluster)
}
