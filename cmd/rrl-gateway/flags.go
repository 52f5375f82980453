// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/http/textfile"
	"github.com/goredisson/ratelimiter/internal/ops/redisurl"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

// minToken is the length of the shortest token: 16 characters of base64 are 96 bits.
const minToken = 16

func serveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "redis", Usage: "`URL` of the Redis: redis://HOST:PORT/DB, rediss:// for TLS, unix:///PATH, redis+sentinel://HOST:PORT/DB?master_name=M, redis+cluster://HOST:PORT; the environment variable REDIS_PASSWORD replaces its password", Sources: cli.EnvVars("REDIS_URL")},
		&cli.StringSliceFlag{Name: "rules", Usage: "`FILE` of rules, YAML or JSON; may be given several times, or with commas between files, so no name may have one"},
		&cli.StringSliceFlag{Name: "allow", Usage: "`HOST` that is allowed beside those of the rules: api.example.com, *.example.com, api.example.com:8443, http://127.0.0.1:8080"},
		&cli.StringFlag{Name: "listen", Usage: "`ADDR` to listen on", Value: "127.0.0.1:8080"},
		&cli.DurationFlag{Name: "max-wait", Usage: "how long a request waits for permits; its Prefer: wait=N can only shorten it", Value: gateway.DefaultMaxWait},
		&cli.DurationFlag{Name: "drain", Usage: "how long requests that are being served may go on after SIGTERM", Value: 10 * time.Second},
		&cli.IntFlag{Name: "max-conns", Usage: "`N` connections that one IPv4 address, or one /64 of IPv6, may have; 0 for no bound, for example behind a proxy whose address all share", DefaultText: "a quarter of the descriptors that the process may open, at most 4096", Value: min(descriptors()/4, 4096)},
		&cli.StringFlag{Name: "token-file", Usage: "`FILE` whose first line is the token that clients have to send"},
		&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` (PEM) with the gateway's certificate, to serve https"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` (PEM) with its key"},
		&cli.StringFlag{Name: "client-ca", Usage: "`FILE` (PEM) with the certificates that a client's must be signed by"},
		&cli.StringFlag{Name: "ca-dir", Usage: "`DIR` of the CA for CONNECT, made by rrl-gateway ca; default: no CONNECT"},
		&cli.StringFlag{Name: "hash-key-file", Usage: "`FILE` with the key of the hashes in limiters' names, as the fleet has it"},
	}
}

// firstLine returns the first line of the file that the flag names, without white space around it.
func firstLine(c *cli.Command, flag string) (string, error) {
	path := c.String(flag)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", usage("--%s: %w", flag, err)
	}
	line, err := textfile.FirstLine(data)
	if err != nil {
		return "", usage("--%s %s: %w", flag, path, err)
	}
	return line, nil
}

// readRules returns the rules of all files.
func readRules(files []string) (rules []httplimit.Rule, err error) {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usage("--rules: %w", err)
		}
		more, err := rulefile.Parse(text)
		if err != nil {
			return nil, usage("--rules %s: %w", name, err)
		}
		rules = append(rules, more...)
	}
	return rules, nil
}

// gatewayOptions returns the options that the flags stand for.
func gatewayOptions(c *cli.Command) (opts []gateway.Option, err error) {
	opts = append(opts, gateway.WithAllow(c.StringSlice("allow")...), gateway.WithMaxWait(c.Duration("max-wait")))
	for _, name := range []string{"max-wait", "drain"} {
		if d := c.Duration(name); d < 0 {
			return nil, usage("--%s %v is negative", name, d)
		}
	}
	if c.IsSet("token-file") {
		token, err := firstLine(c, "token-file")
		if err != nil {
			return nil, err
		}
		if len(token) < minToken {
			return nil, usage("--token-file %s: the first line has %d characters; a token has %d or more", c.String("token-file"), len(token), minToken)
		}
		opts = append(opts, gateway.WithToken(token))
	}
	if c.IsSet("hash-key-file") {
		key, err := firstLine(c, "hash-key-file")
		if err != nil {
			return nil, err
		}
		if len(key) < minToken {
			return nil, usage("--hash-key-file %s: the first line has %d bytes; a key has %d or more", c.String("hash-key-file"), len(key), minToken)
		}
		opts = append(opts, gateway.WithTransport(httplimit.WithHashKey([]byte(key))))
	}
	if dir := c.String("ca-dir"); dir != "" {
		ca, err := gateway.LoadCA(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usage("--ca-dir %s has no CA: rrl-gateway ca --ca-dir %s makes one", dir, dir)
		} else if err != nil {
			return nil, usage("--ca-dir: %w", err)
		}
		opts = append(opts, gateway.WithCA(ca))
	}
	return opts, nil
}

// maxConns returns how many connections an address may have.
func maxConns(c *cli.Command) (int, error) {
	n := c.Int("max-conns")
	if n < 0 {
		return 0, usage("--max-conns %d is negative; 0 is no bound", n)
	}
	return n, nil
}

// checkListen returns an error if others than this machine's processes could use the gateway unasked.
func checkListen(c *cli.Command) error {
	addr := c.String("listen")
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usage("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() || c.IsSet("token-file") || c.IsSet("client-ca") {
		return nil
	}
	return usage("--listen %s is reachable from other machines, whose requests would leave in your name: give --token-file, or --client-ca with --tls-cert and --tls-key", addr)
}

// tlsConfig returns the configuration of https, or nil for plain http.
func tlsConfig(c *cli.Command) (*tls.Config, error) {
	cert, key, ca := c.String("tls-cert"), c.String("tls-key"), c.String("client-ca")
	switch {
	case cert == "" && key == "" && ca == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, usage("--tls-cert and --tls-key belong together, and --client-ca needs both")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usage("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca == "" {
		return conf, nil
	}
	data, err := os.ReadFile(ca)
	if err != nil {
		return nil, usage("--client-ca: %w", err)
	}
	conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven // probes have none: see own
	if !conf.ClientCAs.AppendCertsFromPEM(data) {
		return nil, usage("--client-ca %s has no certificate in PEM", ca)
	}
	return conf, nil
}

// connect returns a client of the Redis that the flags name. It does not wait until Redis answers.
func connect(c *cli.Command) (redis.UniversalClient, error) {
	raw, password := c.String("redis"), os.Getenv("REDIS_PASSWORD")
	if raw == "" {
		return nil, usage("no Redis: give --redis URL, or set REDIS_URL")
	}
	r, err := redisurl.Parse(raw)
	if err != nil {
		return nil, usage("--redis is no Redis URL: %w; it looks like redis://127.0.0.1:6379/0", err)
	}
	if password != "" {
		_, p := r.Login()
		*p = password
	}
	return r.Client(), nil
}
