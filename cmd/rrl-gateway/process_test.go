// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A platform is a dinggate of 400 calls a second beside a stream of events: the second one is sent after /next.
type platform struct {
	*httptest.Server
	gate *dinggate.Gate
	next chan struct{}
}

func newPlatform(t *testing.T, tls bool) *platform {
	limits := dinggate.Standard()
	limits[dinggate.DimAppAPI].Calls, limits[dinggate.DimMonth].Calls = 400, 0
	p := &platform{gate: dinggate.New(limits), next: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("/", p.gate)
	mux.HandleFunc("/next", func(http.ResponseWriter, *http.Request) { p.next <- struct{}{} })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-p.next:
			_, _ = io.WriteString(w, "data: last\n\n")
		case <-r.Context().Done():
		}
	})
	p.Server = httptest.NewUnstartedServer(mux)
	p.EnableHTTP2 = true
	if tls {
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(p.Close)
	return p
}

// program returns the path of a program, and skips the test without it, unless in CI.
func program(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("no %s on PATH", name)
	}
	require.NoError(t, err)
	return path
}

// TestOtherLanguages runs unmodified clients of Java and Python with 500 callers each: with the gateway as the base URL,
// and with what `rrl-gateway ca` prints as their environment. No call may be rejected by the platform, which counts them.
func TestOtherLanguages(t *testing.T) {
	redistest.NeedReal(t)
	redistest.Repeats(t)
	for _, language := range []string{"java", "python3"} {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s proxied=%v", language, proxied), func(t *testing.T) { otherLanguage(t, language, proxied) })
		}
	}
}

func otherLanguage(t *testing.T, language string, proxied bool) {
	bin := program(t, language)
	p := newPlatform(t, proxied)
	trusted := filepath.Join(t.TempDir(), "platform.pem")
	args := []string{"--redis", "redis://" + redistest.Client(t).Options().Addr, "--allow", p.URL,
		"--rules", rulesFor(t, redistest.Key(t), "200", "1500ms")}
	dir := filepath.Join(t.TempDir(), "ca")
	if proxied {
		require.NoError(t, os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600))
		require.Equal(t, exitOK, run(t.Context(), []string{"rrl-gateway", "ca", "--ca-dir", dir}, io.Discard, os.Stderr))
		args = append(args, "--ca-dir", dir)
	}
	g := start(t, []string{"SSL_CERT_FILE=" + trusted}, args...)
	target := "http://" + g.addr + "/" + strings.TrimPrefix(p.URL, "http://")
	var env []string
	version := "HTTP_1_1"
	if proxied {
		target, env = p.URL, environment(t, dir, g.addr, language)
		if language == "java" {
			version = "HTTP_2"
		}
	}
	source := map[string]string{"java": "testdata/Caller.java", "python3": "testdata/caller.py"}[language]
	cmd := exec.CommandContext(t.Context(), bin, source, target, "500")
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", stderr.String(), g.log.String())
	want := map[string]string{"java": "{200=500}", "python3": "{200: 500}"}[language]
	require.Equal(t, version+" "+want+"\ndata: first\ndata: last\n", string(out))
	ledger := p.gate.Ledger()
	redistest.Measured(t, ledger.Total.Admitted == 500 && ledger.Total.Refused == 0, "the platform rejected calls: %+v", ledger.Total)
	require.NotContains(t, g.log.String(), "app-key")
}

// environment returns what the command prints for the language, as a shell sets it. The lines name no
// exception for loopback, which Java makes by itself.
func environment(t *testing.T, dir, addr, language string) (env []string) {
	var out strings.Builder
	require.Equal(t, exitOK, run(t.Context(), []string{"rrl-gateway", "ca", "--ca-dir", dir, "--proxy", "http://" + addr}, &out, os.Stderr))
	require.NotContains(t, out.String(), "PRIVATE")
	part := out.String()[strings.Index(out.String(), "# Python"):]
	if language == "java" {
		part = part[strings.Index(part, "# Java"):]
		_, keytool, _ := strings.Cut(part, "# keytool ")
		keytool, _, _ = strings.Cut(keytool, "\n")
		text, err := exec.Command("sh", "-c", program(t, "keytool")+" "+keytool).CombinedOutput()
		require.NoError(t, err, "%s", text)
	} else {
		part = out.String() // all of it; the last of a variable counts
		part = part[:strings.Index(part, "# Java")]
	}
	sh := exec.Command("sh", "-c", part+"\nenv")
	sh.Env = []string{"PATH=" + os.Getenv("PATH")}
	for line := range strings.Lines(string(redistest.Must(sh.Output())(t))) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "JAVA_TOOL_OPTIONS" {
			value += " -Dhttp.nonProxyHosts=" // loopback is the exception by default
		}
		if !slices.Contains([]string{"PATH", "PWD", "SHLVL", "_", "OLDPWD"}, name) {
			env = append(env, name+"="+value)
		}
	}
	require.NotEmpty(t, env)
	return append(env, "NO_PROXY=", "no_proxy=")
}

// get returns the status and the body of a GET.
func get(t *testing.T, c *http.Client, url, header, value string) (*http.Response, string) {
	t.Helper()
	req := redistest.Must(http.NewRequestWithContext(t.Context(), "GET", url, nil))(t)
	if header != "" {
		req.Header.Set(header, value)
	}
	resp := redistest.Must(c.Do(req))(t)
	defer resp.Body.Close()
	body := redistest.Must(io.ReadAll(resp.Body))(t)
	return resp, string(body)
}

// TestTerm kills the real process while one request waits and a stream is open: the former gets 503 at once, the latter is
// cut after --drain, and the exit code is 0.
func TestTerm(t *testing.T) {
	p := newPlatform(t, false)
	g := start(t, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr, "--allow", p.URL, "--drain", "1s",
		"--rules", rulesFor(t, redistest.Key(t), "1", "1h"))
	base := "http://" + g.addr + "/" + strings.TrimPrefix(p.URL, "http://")
	stream := redistest.Must(http.Get(base + "/events"))(t)
	defer stream.Body.Close()
	waiter := make(chan string, 1)
	go func() {
		resp, err := http.Get(base + "/topapi/x?access_token=secret-token")
		if err != nil {
			waiter <- err.Error()
			return
		}
		_ = resp.Body.Close()
		waiter <- resp.Status + " " + resp.Header.Get("Retry-After")
	}()
	time.Sleep(500 * time.Millisecond) // the request waits by then, or gets the same response because it is new
	g.signal(syscall.SIGTERM)
	require.Equal(t, "503 Service Unavailable 1", <-waiter)
	_, err := io.ReadAll(stream.Body)
	require.Error(t, err)
	require.NoError(t, g.Wait())
	require.Contains(t, g.log.String(), "requests were cut")
	require.Contains(t, g.log.String(), `"msg":"stopped"`)
	require.NotContains(t, g.log.String(), "secret")
}

// TestStrangersCloseItForNobodyElse checks that the connections of a source without a token, of which there are more than the
// gateway has descriptors, leave some to a caller from another one.
func TestStrangersCloseItForNobodyElse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the sources are addresses of loopback, of which only Linux has several")
	}
	p := newPlatform(t, false)
	g := startBy(t, []string{program(t, "sh"), "-c", `ulimit -n 300; exec "$@"`, "sh"}, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr,
		"--allow", p.URL, "--rules", rulesFor(t, redistest.Key(t), "5", "1h"), "--token-file", write(t, "token", "sixteen-letters-"))
	dial := func(source string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		return d.DialContext(t.Context(), "tcp", g.addr)
	}
	asks := func(c net.Conn) string {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // of a connection that is closed the read says so
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	var strangers []net.Conn
	for range 330 {
		c := redistest.Must(dial("127.0.0.2"))(t)
		t.Cleanup(func() { _ = c.Close() })
		strangers = append(strangers, c)
	}
	held := 0
	for _, c := range strangers {
		if line := asks(c); line != "" {
			require.Equal(t, "HTTP/1.1 401 Unauthorized", line)
			held++
		}
	}
	require.Equal(t, 75, held, "a quarter of the descriptors")
	caller := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial("127.0.0.3") }}}
	resp, _ := get(t, caller, "http://"+g.addr+"/"+strings.TrimPrefix(p.URL, "http://")+"/topapi/x", "X-Gateway-Token", "sixteen-letters-")
	require.Equal(t, 200, resp.StatusCode)
	require.NotEmpty(t, asks(strangers[0]), "they have not left")
}

// TestHup checks that SIGHUP reads the rules again, and that a wrong file keeps the old ones.
func TestHup(t *testing.T) {
	p := newPlatform(t, false)
	rules := rulesFor(t, redistest.Key(t), "1", "1h")
	g := start(t, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr, "--allow", p.URL, "--rules", rules, "--max-wait", "0s")
	base := "http://" + g.addr + "/" + strings.TrimPrefix(p.URL, "http://")
	call := func() int {
		resp, _ := get(t, http.DefaultClient, base+"/topapi/v2/user/get?access_token=app-key", "", "")
		return resp.StatusCode
	}
	require.Equal(t, 200, call())
	require.Equal(t, 429, call())
	logged := func(text string) {
		g.signal(syscall.SIGHUP)
		g.log.Await(t, text)
	}
	require.NoError(t, os.WriteFile(rules, []byte("rules: [{limit: x}]"), 0o600))
	logged("the old ones stay")
	require.Contains(t, g.log.String(), "rules[0].limit")
	require.Equal(t, 429, call())
	require.NoError(t, os.WriteFile(rules, redistest.Must(os.ReadFile(rulesFor(t, redistest.Key(t)+":new", "1", "1h")))(t), 0o600))
	logged("the rules were read again")
	require.Equal(t, 200, call())
	require.Equal(t, 429, call())
}

// TestOwnPaths checks the probes with and without a Redis, the token, and the metrics.
func TestOwnPaths(t *testing.T) {
	p := newPlatform(t, false)
	rules, token := rulesFor(t, redistest.Key(t), "1", "1h"), "0123456789abcdef"
	down := start(t, nil, "--redis", fmt.Sprint("redis://127.0.0.1:", redistest.FreePort()), "--rules", rules, "--allow", p.URL)
	up := start(t, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr, "--rules", rules, "--allow", p.URL, "--token-file", write(t, "token", token+"\n"))
	target := "/" + strings.TrimPrefix(p.URL, "http://")
	for _, c := range []struct {
		of            *process
		path          string
		header, value string
		status        int
	}{
		{down, "/healthz", "", "", 200},
		{down, "/readyz", "", "", 503},
		{down, target + "/x", "Prefer", "wait=1", 503}, // the default policy is closed
		{up, "/readyz", "", "", 200},
		{up, target + "/gettoken?appkey=k", "X-Gateway-Token", token, 200},
		{up, target + "/gettoken?appkey=k", "Authorization", "Bearer " + token, 401},
		{up, "/metrics", "", "", 401},
		{up, "/metrics", "Authorization", "Bearer " + token, 200},
	} {
		resp, body := get(t, http.DefaultClient, "http://"+c.of.addr+c.path, c.header, c.value)
		require.Equal(t, c.status, resp.StatusCode, "%s: %s", c.path, body)
		require.Equal(t, c.header == "Prefer", resp.Header.Get("Retry-After") != "")
		if c.path == "/metrics" && c.status == 200 {
			require.Contains(t, body, `rrl_gateway_events_total{kind="granted"} 1`)
			require.Contains(t, body, "ratelimiter_")
		}
	}
	require.NotContains(t, up.log.String(), token)
}

// TestMutualTLS checks that a client without a certificate reaches the probes only.
func TestMutualTLS(t *testing.T) {
	p := newPlatform(t, false)
	cert := redistest.NewCertificate(t, nil)
	g := start(t, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr, "--rules", rulesFor(t, redistest.Key(t), "9", "1h"),
		"--allow", p.URL, "--tls-cert", cert.CertFile, "--tls-key", cert.KeyFile, "--client-ca", cert.CertFile)
	client := func(certs ...tls.Certificate) *http.Client {
		roots := x509.NewCertPool()
		roots.AddCert(cert.Leaf)
		return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}}
	}
	target := "https://" + g.addr + "/" + strings.TrimPrefix(p.URL, "http://") + "/gettoken?appkey=k"
	resp, _ := get(t, client(), "https://"+g.addr+"/healthz", "", "")
	require.Equal(t, 200, resp.StatusCode)
	resp, _ = get(t, client(), target, "", "")
	require.Equal(t, 401, resp.StatusCode)
	resp, _ = get(t, client(cert.Certificate), target, "", "")
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, 2, resp.ProtoMajor)
}

// TestDemoLinksNoMetrics checks that rrl does not link the library of the metrics, for which this is a command of its own.
func TestDemoLinksNoMetrics(t *testing.T) {
	redistest.NoServer(t)
	_, file, _, _ := runtime.Caller(0)
	linked := func(dir string) string {
		cmd := exec.Command("go", "list", "-deps", ".")
		cmd.Dir = filepath.Join(filepath.Dir(file), dir)
		out := redistest.Must(cmd.Output())(t)
		return string(out)
	}
	require.NotContains(t, linked("../rrl"), "prometheus")
	require.Contains(t, linked("."), "prometheus")
}

// TestFrozenRedis checks that /readyz does not wait for a Redis that stands still as long as the redis client would.
func TestFrozenRedis(t *testing.T) {
	redistest.NeedReal(t)
	s := redistest.Start(t)
	g := start(t, nil, "--redis", "redis://"+s.Addr()+"/0?read_timeout=1h", "--rules", rulesFor(t, redistest.Key(t), "1", "1h"))
	patient := &http.Client{Timeout: time.Minute}
	resp, _ := get(t, patient, "http://"+g.addr+"/readyz", "", "")
	require.Equal(t, 200, resp.StatusCode)
	s.Pause()
	defer s.Resume()
	resp, _ = get(t, patient, "http://"+g.addr+"/readyz", "", "")
	require.Equal(t, 503, resp.StatusCode)
}

// TestLogIsJSON checks that what a platform does on its connections is logged as lines of JSON that have nothing of a body: bytes
// behind the end of one, and a body that is cut.
func TestLogIsJSON(t *testing.T) {
	addr := redistest.Listen(t, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		if r.URL.Path == "/cut" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"token\": \"SECRET")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}{\"token\": \"SECRET\"}")
		_, _ = io.Copy(io.Discard, c)
	})
	g := start(t, nil, "--redis", "redis://"+redistest.Client(t).Options().Addr, "--allow", "http://"+addr, "--rules", rulesFor(t, redistest.Key(t), "99", "1h"))
	for path, logged := range map[string]string{"/more": "Unsolicited response received on idle HTTP channel", "/cut": "read error during body copy"} {
		resp := redistest.Must(http.Get("http://" + g.addr + "/" + addr + path))(t)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		g.log.Await(t, logged)
	}
	g.signal(syscall.SIGTERM)
	require.NoError(t, g.Wait())
	require.NotContains(t, g.log.String(), "SECRET")
	for line := range strings.Lines(g.log.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}
