// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"
)

var binDir string

func TestMain(m *testing.M) {
	redistest.Main(m, func() { _ = os.RemoveAll(binDir) })
}

// binary builds the command once.
var binary = sync.OnceValues(func() (path string, err error) {
	if binDir, err = os.MkdirTemp("", "rrl-gateway"); err != nil {
		return "", err
	}
	path = filepath.Join(binDir, "rrl-gateway")
	return path, exec.Command("go", "build", "-o", path, ".").Run()
})

// A process is a running rrl-gateway.
type process struct {
	*exec.Cmd
	t    *testing.T
	addr string
	log  redistest.Log
}

// start starts the real command on a free port, and waits until it listens.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startBy(t, nil, env, args...)
}

// startBy is start by a command that runs its arguments.
func startBy(t *testing.T, by, env []string, args ...string) *process {
	t.Helper()
	words := slices.Concat(by, []string{redistest.Must(binary())(t)}, args, []string{"--listen", "127.0.0.1:0"})
	p := &process{Cmd: exec.Command(words[0], words[1:]...), t: t}
	p.Env, p.Stderr = append(os.Environ(), env...), &p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() }) // it may have ended
	p.addr = p.log.Await(t, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	return p
}

func (p *process) signal(s syscall.Signal) { require.NoError(p.t, p.Process.Signal(s)) }

// write writes a file and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const oneRule = `rules:
  - name: messages
    match: {hosts: [127.0.0.1]}
    limits:
      - {name: "NAME", permits: PERMITS, interval: INTERVAL}
`

func rulesFor(t *testing.T, name, permits, interval string) string {
	return write(t, "rules.yaml", strings.NewReplacer("NAME", name, "PERMITS", permits, "INTERVAL", interval).Replace(oneRule))
}

// TestVersion checks that the version tells what a report of a problem needs.
func TestVersion(t *testing.T) {
	redistest.NoServer(t)
	out := redistest.Must(exec.Command(redistest.Must(binary())(t), "version").Output())(t)
	require.Regexp(t, `^rrl-gateway \S.* `+runtime.Version()+` `+runtime.GOOS+`/`+runtime.GOARCH+`\nratelimiter \S+\ngo-redis v9\.\S+\n`, string(out))
}

// TestUsage checks that what is wrong is named as it was written, and that the exit code is 2.
func TestUsage(t *testing.T) {
	redistest.NoServer(t)
	rules := rulesFor(t, "x", "5", "1m")
	dir := t.TempDir()
	for want, args := range map[string][]string{
		`no command "dance"`:                                      {"dance"},
		`version takes no argument "2"`:                           {"version", "2"},
		"provided but not defined: -fast":                         {"--fast"},
		"no rules: give --rules FILE":                             {"--redis", "redis://x"},
		"--rules: open nowhere.yaml":                              {"--rules", "nowhere.yaml"},
		"line 5: rules[0].limits[0].interval":                     {"--rules", rulesFor(t, "x", "5", "soon")},
		"no Redis: give --redis URL":                              {"--rules", rules},
		"--redis is no Redis URL":                                 {"--rules", rules, "--redis", "redis://u:secret@h:port"},
		"there is no master_name":                                 {"--rules", rules, "--redis", "redis+sentinel://h:1/0"},
		"--max-wait -1s is negative":                              {"--rules", rules, "--max-wait", "-1s"},
		"--drain -1s is negative":                                 {"--rules", rules, "--drain", "-1s"},
		`allow "ftp://x": the scheme`:                             {"--rules", rules, "--redis", "redis://x", "--allow", "ftp://x"},
		"--listen 0.0.0.0:80 is reachable from other":             {"--rules", rules, "--listen", "0.0.0.0:80"},
		"--listen :80 is reachable":                               {"--rules", rules, "--listen", ":80"},
		"--listen example.com:80 is reachable":                    {"--rules", rules, "--listen", "example.com:80"},
		"--listen: address 80: missing port":                      {"--rules", rules, "--listen", "80"},
		"the first line has 5 characters":                         {"--rules", rules, "--token-file", write(t, "token", "short\nand more\n")},
		"--token-file: open nowhere":                              {"--rules", rules, "--token-file", "nowhere"},
		"--client-ca needs both":                                  {"--rules", rules, "--client-ca", "x"},
		"--tls-cert x, --tls-key y: open x":                       {"--rules", rules, "--tls-cert", "x", "--tls-key", "y"},
		"has no CA: rrl-gateway ca --ca-dir":                      {"--rules", rules, "--ca-dir", dir},
		"--proxy is not like http://127.0.0.1:8080":               {"ca", "--ca-dir", dir, "--proxy", "gw"},
		`ca needs --ca-dir DIR, for the CA's certificate and key`: {"ca"},
		"the first line has 3 bytes":                              {"--rules", rules, "--redis", "redis://x", "--hash-key-file", write(t, "key", "key")},
		"marked: the first line has 3 bytes":                      {"--rules", rules, "--redis", "redis://x", "--hash-key-file", write(t, "marked", "\xef\xbb\xbf key \t\r\n")},
		"wide: the first line has 3 bytes":                        {"--rules", rules, "--redis", "redis://x", "--hash-key-file", write(t, "wide", "\xff\xfek\x00e\x00y\x00")},
		"padded: the first line has 5 characters":                 {"--rules", rules, "--token-file", write(t, "padded", "short               \n")},
		"key16: it is in UTF-16 without a byte order mark":        {"--rules", rules, "--redis", "redis://x", "--hash-key-file", write(t, "key16", "k\x00e\x00y\x00")},
		"binary: the first line is not text in UTF-8":             {"--rules", rules, "--token-file", write(t, "binary", strings.Repeat("\xe9", 32))},
	} {
		t.Setenv("REDIS_URL", "")
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"rrl-gateway"}, args...), &out, &errs)
		require.Equal(t, exitUsage, code, "%v: %s", args, errs.String())
		require.Contains(t, errs.String(), want)
		require.NotContains(t, errs.String(), "secret")
	}
}

// TestEmptyFlags checks of every flag of every command that an empty value, which is that of a variable that is not set, is wrong usage,
// and that the error names the flag; and of a list that none of its values may be empty.
func TestEmptyFlags(t *testing.T) {
	flags := 0
	var walk func(c *cli.Command, path []string)
	walk = func(c *cli.Command, path []string) {
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				dash := "--"
				if len(name) == 1 {
					dash = "-"
				}
				given := [][]string{{dash + name + "="}}
				if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
					given = append(given, []string{dash + name, ""})
				}
				if _, ok := f.(*cli.StringSliceFlag); ok {
					given = append(given, []string{dash + name, "a,"}, []string{dash + name, "a", dash + name, ""})
				}
				for _, value := range given {
					flags++
					args := append(slices.Clone(path), value...)
					var out, stderr bytes.Buffer
					code := run(t.Context(), append([]string{"rrl-gateway"}, args...), &out, &stderr)
					errs := stderr.String()
					require.Equal(t, exitUsage, code, "%q: %s", args, errs)
					require.Regexp(t, "-"+name+"( is empty: give it a value, or leave it out|: a value is empty)", errs, "%q", args)
				}
			}
		}
		for _, sub := range c.Commands {
			walk(sub, append(slices.Clone(path), sub.Name))
		}
	}
	walk(newApp(io.Discard, io.Discard), nil)
	require.Greater(t, flags, 25)
}

// TestCALinesAreForAShell has a shell read what ca prints for a folder whose name it would take apart: the variables are the paths,
// and nothing is run.
func TestCALinesAreForAShell(t *testing.T) {
	redistest.NoServer(t)
	dir := filepath.Join(t.TempDir(), `a b's $(touch ran) "c"`)
	var out bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"rrl-gateway", "ca", "--ca-dir", dir, "--proxy", "http://127.0.0.1:8080"}, &out, os.Stderr))
	lines := out.String() + `printf '%s\n' "$HTTPS_PROXY" "$SSL_CERT_FILE" "$REQUESTS_CA_BUNDLE" "$NODE_EXTRA_CA_CERTS" "$JAVA_TOOL_OPTIONS"`
	sh := exec.Command("sh", "-c", lines)
	sh.Dir = t.TempDir()
	read := strings.Split(string(redistest.Must(sh.Output())(t)), "\n")
	cert, store := filepath.Join(dir, gateway.CACertFile), filepath.Join(dir, "truststore.p12")
	require.Equal(t, []string{"http://127.0.0.1:8080", cert, cert, cert}, read[:4])
	require.True(t, strings.HasPrefix(read[4], "'-Djavax.net.ssl.trustStore="+strings.ReplaceAll(store, "'", `'"'"'`)+`' -Djavax.net.ssl.trustStorePassword=changeit -Dhttps.proxyHost=127.0.0.1 `), read[4])
	require.Empty(t, redistest.Must(os.ReadDir(sh.Dir))(t), "nothing was run")
	broken := filepath.Join(t.TempDir(), "a\nb")
	var told strings.Builder
	require.Equal(t, exitUsage, run(t.Context(), []string{"rrl-gateway", "ca", "--ca-dir", broken, "--proxy", "http://127.0.0.1:8080"}, io.Discard, &told))
	require.Contains(t, told.String(), `a\nb" cannot be pasted`)
	require.NoDirExists(t, broken)
	_, line, _ := strings.Cut(out.String(), "# keytool ")
	line, _, _ = strings.Cut(line, "\n")
	require.Equal(t, store+"\n"+cert+"\n", string(redistest.Must(exec.Command("sh", "-c", "keytool() { printf '%s\\n' \"${10}\" \"${12}\"; }; keytool "+line).Output())(t)))
}
