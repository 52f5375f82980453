// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/dispatch"
	"github.com/goredisson/ratelimiter/internal/http/textfile"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/redisurl"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

// redisFlags are the flags of the commands that look at a live Redis.
func redisFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "redis", Usage: "`URL` of the Redis: redis://HOST:PORT/DB, rediss:// for TLS, unix:///PATH, redis+sentinel://HOST:PORT/DB?master_name=M, redis+cluster://HOST:PORT", Sources: cli.EnvVars("REDIS_URL")},
		&cli.StringFlag{Name: "user", Usage: "`NAME` of the ACL user", Sources: cli.EnvVars("REDIS_USER")},
		&cli.StringFlag{Name: "password-file", Usage: "`FILE` whose first line is the password; the environment variable REDIS_PASSWORD does as well"},
		&cli.BoolFlag{Name: "ask-password", Usage: "ask for the password on the terminal"},
		&cli.StringFlag{Name: "tls-ca", Usage: "`FILE` (PEM) with the certificates that the server's must be signed by; default: those of the system"},
		&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` (PEM) with the client's certificate"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` (PEM) with the client's key"},
		&cli.BoolFlag{Name: "json", Usage: "write JSON"},
	}, more...)
}

// A liveRedis is the Redis that a command looks at.
type liveRedis struct {
	redis.UniversalClient
	where string        // for people; it never holds a password
	to    doctor.Target // for the commands that are printed
	nodes []survey.Node // the masters of a cluster; nil for everything else
}

// connect connects to the Redis that the flags name.
func connect(ctx context.Context, c *cli.Command) (*liveRedis, error) {
	raw := c.String("redis")
	if raw == "" {
		return nil, command.Usage("no Redis: give --redis URL, or set REDIS_URL")
	}
	password, err := passwordOf(c)
	if err != nil {
		return nil, err
	}
	t, err := targetOf(raw, c.String("user"), password)
	if err != nil {
		return nil, err
	}
	if err := t.tls(c.String("tls-ca"), c.String("tls-cert"), c.String("tls-key")); err != nil {
		return nil, err
	}
	rdb := &liveRedis{UniversalClient: t.client(), where: t.where}
	err = rdb.reach(ctx, t)
	if rdb.to = doctor.At(t.Redis, t.raw); err == nil {
		err = addFlags(c, &rdb.to)
	}
	if err != nil {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, command.ErrInterrupted
		}
		if command.Code(err) == command.ExitUsage {
			return nil, err
		}
		return nil, command.Error{Code: command.ExitDown, Err: fmt.Errorf("the Redis at %s does not answer: %w", rdb.where, err)}
	}
	return rdb, nil
}

// reach makes sure that there is a Redis with limiters. A node of a cluster holds only a part of them, so it becomes the
// cluster.
func (rdb *liveRedis) reach(ctx context.Context, t *target) error {
	if t.Cluster == nil {
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		err := rdb.Ping(ping).Err()
		if t.Single == nil || err != nil && (t.Single.DB == 0 || !strings.Contains(strings.ToLower(err.Error()), "select")) {
			return err
		}
		first := rdb.UniversalClient
		if err != nil { // a sentinel and a cluster reject SELECT
			o := *t.Single
			o.DB = 0
			first = redis.NewClient(&o)
			defer func() { _ = first.Close() }()
		}
		var lost error // without INFO, which an ACL may deny, it is one server; without a reply it is not known
		info := func(section string) string {
			text, err := first.Info(ping, section).Result()
			if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
				lost = cmp.Or(lost, err)
			}
			return text
		}
		server, cluster := info("server"), info("cluster")
		switch {
		case lost != nil:
			return lost
		case strings.Contains(server, "_mode:sentinel"):
			return t.isSentinel(ping)
		case !strings.Contains(cluster, "cluster_enabled:1") || t.Single.Network == "unix" && err == nil:
			return err
		case err != nil:
			return command.Usage("%s is a node of a cluster, which has database 0 only: leave /%d out of the URL", t.Single.Addr, t.Single.DB)
		case t.Single.DB != 0:
			return nil // Valkey has several
		}
		_ = rdb.Close()
		t.toCluster()
		rdb.UniversalClient, rdb.where = t.client(), t.where
	}
	within, cancel := context.WithTimeout(ctx, readTimeout+time.Second) // the first node that is asked may not reply
	defer cancel()
	var err error
	rdb.nodes, err = survey.New(rdb.UniversalClient).Nodes(within)
	return err
}

// isSentinel returns the error that the URL is that of a sentinel. It says which URL to give.
func (t *target) isSentinel(ctx context.Context) error {
	o := *t.Single
	o.DB = 0
	sentinel := redis.NewSentinelClient(&o)
	defer func() { _ = sentinel.Close() }()
	masters, _ := sentinel.Masters(ctx).Result()
	scheme := "redis"
	if o.TLSConfig != nil {
		scheme = "rediss"
	}
	var urls []string
	for _, m := range masters {
		name := ""
		switch m := m.(type) {
		case map[any]any:
			name, _ = m["name"].(string)
		case []any:
			for i := 0; i+1 < len(m); i += 2 {
				if m[i] == "name" {
					name, _ = m[i+1].(string)
				}
			}
		}
		if name != "" {
			urls = append(urls, doctor.ShellQuote(fmt.Sprintf("%s+sentinel://%s/%d?master_name=%s", scheme, o.Addr, t.Single.DB, url.QueryEscape(name))))
		}
	}
	if len(urls) == 0 {
		urls = []string{scheme + "+sentinel://" + o.Addr + "/0?master_name=NAME"}
	}
	return command.Usage("%s is a sentinel, which has no limiters; give --redis %s", o.Addr, strings.Join(urls, " or --redis "))
}

// A target is where to connect to.
type target struct {
	redisurl.Redis
	raw   string // the URL that was given
	where string
}

// targetOf parses a URL. User and password, if not empty, take the place of those in the URL.
func targetOf(raw, user, password string) (*target, error) {
	r, err := redisurl.Parse(raw)
	if err != nil {
		return nil, command.Usage("invalid Redis URL: %w; it looks like redis://127.0.0.1:6379/0", err)
	}
	u, p := r.Login()
	*u, *p = cmp.Or(user, *u), cmp.Or(password, *p)
	if *u == "default" {
		*u = "" // is the same, also to a server that has no ACL
	}
	if *u != "" && *p == "" {
		// go-redis would leave the user out, and connect as the default user. Somebody may have written a password in the place of its name.
		return nil, command.Usage("a user is given without a password: add it in the URL, as in redis://USER:PASSWORD@HOST:PORT, or set REDIS_PASSWORD " +
			"(for a user with nopass any will do; a password alone is redis://:PASSWORD@HOST:PORT)")
	}
	t := &target{Redis: r, raw: raw}
	switch {
	case t.Single != nil:
		t.where = fmt.Sprintf("%s, database %d", t.Single.Addr, t.Single.DB)
	case t.Sentinel != nil:
		t.Sentinel.SentinelPassword = cmp.Or(t.Sentinel.SentinelPassword, os.Getenv(doctor.SentinelPasswordVariable))
		t.where = fmt.Sprintf("the master %q of the sentinel %s, database %d", t.Sentinel.MasterName, strings.Join(t.Sentinel.SentinelAddrs, ", "), t.Sentinel.DB)
	default:
		t.where = "the cluster of " + strings.Join(t.Cluster.Addrs, ", ")
	}
	return t, nil
}

// toCluster makes a target of one node the target of its cluster.
func (t *target) toCluster() {
	o := t.Single
	t.Cluster = &redis.ClusterOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig}
	t.Single, t.where = nil, "the cluster of "+o.Addr
}

// tls reads the files of the flags. They need a URL whose scheme begins with rediss.
func (t *target) tls(ca, cert, key string) error {
	config := t.TLS()
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	if *config == nil {
		return command.Usage("--tls-ca, --tls-cert and --tls-key need a URL that begins with rediss")
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return command.Usage("--tls-ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return command.Usage("--tls-ca: there is no certificate in %s", ca)
		}
		(*config).RootCAs = pool
	}
	if (cert == "") != (key == "") {
		return command.Usage("--tls-cert and --tls-key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return command.Usage("--tls-cert: %w", err)
		}
		(*config).Certificates = []tls.Certificate{pair}
	}
	return nil
}

// pingTimeout bounds the PING that checks whether a Redis can be reached.
const pingTimeout = 2 * time.Second

// readTimeout is how long a command waits for its reply. Tests of large replies have more.
var readTimeout = 3 * time.Second

// client returns a client that asks once more and then gives up, because somebody waits for it.
func (t *target) client() redis.UniversalClient {
	const dial, retries = 2 * time.Second, 1
	read := readTimeout
	const pool = 40 // the doctor has so many calls on their way at most
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o := t.Single; o != nil {
		o.DialTimeout, o.ReadTimeout, o.MaxRetries, o.DialerRetries, o.PoolSize = dial, read, retries, 1, pool
		o.DisableIdentity, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = true, true, off
	}
	if o := t.Sentinel; o != nil {
		o.DialTimeout, o.ReadTimeout, o.MaxRetries, o.DialerRetries, o.PoolSize = dial, read, retries, 1, pool
		o.DisableIdentity, o.ContextTimeoutEnabled = true, true
	}
	if o := t.Cluster; o != nil {
		o.DialTimeout, o.ReadTimeout, o.DialerRetries, o.PoolSize = dial, read, 1, pool
		o.DisableIdentity, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = true, true, off
	}
	return t.Client()
}

// passwordOf returns the password that does not come with the URL: of a file, of the terminal, or of the environment.
func passwordOf(c *cli.Command) (string, error) {
	if path := c.String("password-file"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", command.Usage("--password-file: %w", err)
		}
		password, err := textfile.FirstLine(text)
		if err != nil {
			return "", command.Usage("--password-file %s: %w", path, err)
		}
		return password, nil
	}
	if c.Bool("ask-password") {
		return askPassword(c)
	}
	if p := os.Getenv("REDIS_PASSWORD"); p != "" {
		return p, nil
	}
	return os.Getenv("REDISCLI_AUTH"), nil
}

// askPassword reads a line from the terminal, which does not show it.
func askPassword(c *cli.Command) (string, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", command.Usage("--ask-password: the standard input is no terminal that can hide what is typed; use --password-file or REDIS_PASSWORD")
	}
	fmt.Fprint(c.Root().ErrWriter, "password: ")
	line, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(c.Root().ErrWriter)
	if err != nil {
		return "", fmt.Errorf("--ask-password: %w", err)
	}
	return string(line), nil
}

// addFlags adds what flags of this command say that the printed ones need, too, with files by their whole paths.
func addFlags(c *cli.Command, p *doctor.Target) (err error) {
	for name, file := range map[string]*string{"tls-ca": &p.CA, "tls-cert": &p.Cert, "tls-key": &p.Key} {
		if *file = c.String(name); *file != "" && err == nil {
			*file, err = filepath.Abs(*file)
		}
	}
	switch path := c.String("password-file"); {
	case path != "" && err == nil:
		path, err = filepath.Abs(path)
		p.Flags = append(p.Flags, doctor.Flag("--password-file", path))
	case c.Bool("ask-password"):
		p.Flags = append(p.Flags, "--ask-password")
	}
	return err
}

// advice says what to do about an error of Redis or of the connection, by a part of its text, where that is a flag or another
// URL; dispatch.Advise has the rest.
var advice = []struct{ part, what string }{
	{"NOAUTH", "it wants a password: set REDIS_PASSWORD, or give --password-file or --ask-password"},
	{"WRONGPASS", "the user or the password is wrong; --user names the user of an ACL"},
	{"invalid username-password", "the user or the password is wrong; --user names the user of an ACL"},
	{"NOPERM", "the user may not do that; docs/rrl.md lists what its ACL has to allow"},
	{"first record does not look like a TLS handshake", "it does not speak TLS there; use redis:// in place of rediss://"},
	{"x509: certificate is valid for", otherName},
	{"x509: certificate is not valid for any names", otherName},
	{"because it doesn't contain any IP SANs", otherName},
	{"x509:", "its certificate is not trusted; --tls-ca names the file of those who signed it"},
	{"tls: handshake failure", "it may want a certificate of the client: --tls-cert and --tls-key"},
	{"certificate required", "it wants a certificate of the client: --tls-cert and --tls-key"},
	{"all sentinels specified in configuration are unreachable", "check the addresses of the sentinels and master_name"},
	{"i/o timeout", "it did not reply in time; check the network, and that rediss:// is used if it speaks TLS, and only then"},
	{"context deadline exceeded", "it did not reply in time; check the network, and that rediss:// is used if it speaks TLS, and only then"},
	{"no reply from Redis", "it did not reply in time; check the network, and that rediss:// is used if it speaks TLS, and only then"},
	{"EOF", closed},
	{"connection reset by peer", closed},
	{"broken pipe", closed},
	{"unknown command 'cluster'", "it is a sentinel or an old server; use redis:// in place of redis+cluster://, which says more"},
	{"DB index is out of range", "it has fewer databases; /0 is the first"},
	{"got 0 elements in cluster info", "it is no cluster; use redis:// in place of redis+cluster://"},
	{"cluster support disabled", "it is no cluster; use redis:// in place of redis+cluster://"},
}

const closed = "it closed the connection; check that rediss:// is used if it speaks TLS, and --tls-cert and --tls-key if it wants a certificate of the client"

const otherName = "its certificate has another name; the URL has to have one of those"

// advise adds to an error what to do about it.
func advise(err error) error {
	for _, a := range advice {
		if strings.Contains(err.Error(), a.part) {
			return fmt.Errorf("%w (%s)", err, a.what)
		}
	}
	return dispatch.Advise(err)
}
