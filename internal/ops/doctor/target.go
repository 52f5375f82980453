// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/goredisson/ratelimiter/internal/ops/redisurl"
	"github.com/redis/go-redis/v9"
)

// A Target is the Redis that commands are about. A command names its server, its database and its user, so that it reaches
// no other Redis wherever it is pasted; it never has a password, which programs read from [PasswordVariable].
type Target struct {
	Addrs   []string // of the server, of the sentinels, or of nodes of the cluster; empty if that is not known
	Socket  string   // the path of a Unix socket, in place of an address
	Master  string   // the name that sentinels know it by, or empty
	Primary string   // the address of the server that redis-cli is to reach, of several; or empty
	Cluster bool
	DB      int
	User    string // empty for the user default
	TLS     bool

	Insecure      bool   // the certificate of the server is not checked
	CA, Cert, Key string // files in PEM

	SentinelUser     string // of the sentinels
	SentinelPassword bool   // the sentinels want one

	Options  url.Values // what else the URL says
	Flags    []string   // other flags of rrl, such as the one that names the file of the password
	Password bool       // the user has one
}

// PasswordVariable is the environment variable from which both redis-cli and rrl read a password.
const PasswordVariable = "REDISCLI_AUTH"

// SentinelPasswordVariable is the one from which rrl reads the password of sentinels.
const SentinelPasswordVariable = "REDIS_SENTINEL_PASSWORD"

// TargetOf returns the Target that a client is connected to, as far as its options tell. Files of certificates do not follow
// from them, nor do the sentinels.
func TargetOf(rdb redis.UniversalClient) Target {
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return At(redisurl.Redis{Single: rdb.Options()}, "")
	case interface{ Options() *redis.ClusterOptions }:
		return At(redisurl.Redis{Cluster: rdb.Options()}, "")
	case interface{ Options() *redis.RingOptions }: // it has several addresses
		o := rdb.Options()
		return At(redisurl.Redis{Single: &redis.Options{DB: o.DB, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig}}, "")
	}
	return Target{}
}

// secrets are the parts of the names of query parameters that are not printed.
var secrets = []string{"password", "passwd", "secret", "auth", "username"}

// rest returns the query parameters of a URL that a command keeps: none that is a secret, none that the Target has by itself.
func rest(q url.Values) url.Values {
	kept := url.Values{}
	for key, values := range q {
		secret := slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(strings.ToLower(key), s) })
		if !secret && !slices.Contains([]string{"db", "addr", "master_name", "skip_verify"}, key) {
			kept[key] = values
		}
	}
	return kept
}

// At returns the Target whose commands of redis-cli go to one of its servers, as a finding names it. Where no other address is known,
// as of a ring, it is that of rrl, too.
func (t Target) At(node string) Target {
	host, port, err := net.SplitHostPort(node)
	if err != nil || host == "" || port == "" {
		return t
	}
	if t.Primary = node; len(t.Addrs) == 0 && t.Socket == "" {
		t.Addrs = []string{node}
	}
	return t
}

// URL returns the URL of the Target as rrl takes it. Where nothing is known it is no URL, which rrl rejects.
func (t Target) URL() string {
	scheme, q := "redis", url.Values{}
	for key, values := range t.Options {
		q[key] = values
	}
	if t.TLS {
		scheme = "rediss"
	}
	if t.Insecure && !t.Cluster { // whose URLs cannot say it
		q.Set("skip_verify", "true")
	}
	switch {
	case t.Socket != "":
		q.Set("db", fmt.Sprint(t.DB))
		return (&url.URL{Scheme: "unix", Path: t.Socket, RawQuery: q.Encode()}).String()
	case len(t.Addrs) == 0:
		return "URL"
	case len(t.Addrs) > 1:
		q["addr"] = t.Addrs[1:]
	}
	path := fmt.Sprint("/", t.DB)
	switch {
	case t.Master != "":
		scheme += "+sentinel"
		q.Set("master_name", t.Master)
	case t.Cluster:
		scheme, path = scheme+"+cluster", ""
	}
	u := &url.URL{Scheme: scheme, Host: t.Addrs[0], Path: path, RawQuery: q.Encode()}
	if t.SentinelUser != "" {
		u.User = url.User(t.SentinelUser)
	}
	return u.String()
}

// Command returns a command of rrl as one types it into a shell: its arguments and flags, which are quoted here. If an argument
// begins with a dash, as the name of a limiter may, the arguments come last, after "--". A name, the first argument, that a shell
// cannot carry is in base64. Command returns NoCommand if a word cannot be quoted all the same.
func (t Target) Command(command string, args []string, flags ...string) Cmd {
	// Without a user, rrl would take that of REDIS_USER.
	of := append([]string{Flag("--redis", t.URL()), Flag("--user", cmp.Or(t.User, "default"))}, t.Flags...)
	for _, f := range [][2]string{{"--tls-ca", t.CA}, {"--tls-cert", t.Cert}, {"--tls-key", t.Key}} {
		if f[1] != "" {
			of = append(of, Flag(f[0], f[1]))
		}
	}
	flags = slices.Concat(of, flags)
	if len(args) > 0 && ShellQuote(args[0]) == NoCommand {
		args, flags = append([]string{base64.StdEncoding.EncodeToString([]byte(args[0]))}, args[1:]...), append([]string{"--base64"}, flags...)
	}
	text := Shell(args...)
	if text == NoCommand || slices.Contains(flags, NoCommand) {
		return NoCommand
	}
	var words []string
	switch {
	case len(args) == 0:
		words = flags
	case slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }):
		words = slices.Concat(flags, []string{"--", text})
	default:
		words = slices.Concat([]string{text}, flags)
	}
	return Cmd(strings.Join(slices.Concat([]string{"rrl", command}, words), " "))
}

// RedisCLI returns a command of redis-cli as one types it into a shell. It returns NoCommand if a word cannot be quoted.
func (t Target) RedisCLI(words ...string) Cmd {
	list := []string{"redis-cli"}
	addr := t.Primary
	if addr == "" && t.Master == "" && len(t.Addrs) > 0 {
		addr = t.Addrs[0]
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = "HOST", "PORT" // which redis-cli rejects
	}
	checks := len(words) > 0 && words[0] == "--cluster" // its last word is the node
	switch {
	case checks:
	case t.Socket != "":
		list = append(list, "-s", t.Socket)
	default:
		list = append(list, "-h", host, "-p", port)
	}
	switch {
	case t.Cluster && !checks:
		list = append(list, "-c")
	case !checks:
		list = append(list, "-n", fmt.Sprint(t.DB))
	}
	if t.User != "" {
		list = append(list, "--user", t.User) // redis-cli takes none from elsewhere
	}
	if t.TLS {
		list = append(list, "--tls")
	}
	if t.Insecure {
		list = append(list, "--insecure")
	}
	for _, f := range [][2]string{{"--cacert", t.CA}, {"--cert", t.Cert}, {"--key", t.Key}} {
		if f[1] != "" {
			list = append(list, f[0], f[1])
		}
	}
	return Cmd(Shell(append(list, words...)...))
}

// Note says how the commands get the passwords that none of them has. It is empty if there is none.
func (t Target) Note() Text {
	var notes []Text
	if t.Password {
		notes = append(notes, say("the commands have no password: set that of the user %q in the environment variable %s, and no other in REDIS_PASSWORD",
			cmp.Or(t.User, "default"), PasswordVariable))
	}
	if t.SentinelPassword {
		notes = append(notes, say("set the password of the sentinels in %s", SentinelPasswordVariable))
	}
	if len(notes) == 0 {
		return Text{}
	}
	return Listed("; ", notes)
}

// ParseTarget returns the Target that a URL names, as rrl takes it with --redis.
func ParseTarget(raw string) (Target, error) {
	r, err := redisurl.Parse(raw)
	if err != nil {
		return Target{}, err
	}
	return At(r, raw), nil
}

// At returns the Target of r, which was parsed from that URL, if there was one; it may be another kind of Redis by now. A server of a
// failover client has no address.
func At(r redisurl.Redis, raw string) Target {
	config := *r.TLS()
	user, password := r.Login()
	t := Target{User: *user, Password: *password != "", TLS: config != nil, Insecure: config != nil && config.InsecureSkipVerify}
	if u, err := url.Parse(raw); err == nil {
		t.Options = rest(u.Query())
	}
	switch {
	case r.Cluster != nil:
		t.Addrs, t.Cluster = r.Cluster.Addrs, true
	case r.Sentinel != nil:
		o := r.Sentinel
		t.Addrs, t.Master, t.DB, t.SentinelUser, t.SentinelPassword = o.SentinelAddrs, o.MasterName, o.DB, o.SentinelUsername, o.SentinelPassword != ""
	case r.Single.Network == "unix":
		t.Socket, t.DB = r.Single.Addr, r.Single.DB
	case strings.Contains(r.Single.Addr, ":"):
		t.Addrs, t.DB = []string{r.Single.Addr}, r.Single.DB
	default:
		t.DB = r.Single.DB
	}
	return t
}
