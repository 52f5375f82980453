// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/ops/shell"
)

// printCA makes the CA if there is none, and prints what clients need.
func printCA(stdout io.Writer, dir, proxy string) error {
	u, err := url.Parse(proxy)
	if err != nil || u.Hostname() == "" || u.Port() == "" {
		return usage("--proxy is not like http://127.0.0.1:8080")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return usage("--ca-dir: %w", err)
	}
	for _, flag := range [][2]string{{"--ca-dir", dir}, {"--proxy", proxy}} {
		if !shell.Printable(flag[1]) {
			return usage("%s: %q cannot be pasted into a shell, because it has characters that are not printable", flag[0], flag[1])
		}
	}
	ca, err := gateway.LoadCA(dir)
	if errors.Is(err, fs.ErrNotExist) {
		ca, err = gateway.CreateCA(dir)
	}
	if err != nil {
		return usage("--ca-dir: %w", err)
	}
	cert, store := ca.Certificate(), filepath.Join(dir, "truststore.p12")
	return caText.Execute(stdout, map[string]any{"Cert": filepath.Join(dir, gateway.CACertFile), "Store": store, "Java": javaOptions(store, u),
		"Until": cert.NotAfter.Format(time.DateOnly), "SHA": fmt.Sprintf("%X", sha256.Sum256(cert.Raw)), "Proxy": proxy})
}

//go:embed ca.txt
var caFile string

// caText is what clients need, a line for each.
var caText = template.Must(template.New("").Funcs(template.FuncMap{"sh": func(text string) string {
	word, _ := shell.Quote(text) // printCA has checked what it consists of
	return word
}}).Parse(caFile))

// javaOptions returns what JAVA_TOOL_OPTIONS has to be. The JVM splits it at spaces, but for those within quotes.
func javaOptions(store string, proxy *url.URL) string {
	options := []string{"javax.net.ssl.trustStore=" + store, "javax.net.ssl.trustStorePassword=changeit"}
	for _, scheme := range []string{"https", "http"} {
		options = append(options, scheme+".proxyHost="+proxy.Hostname(), scheme+".proxyPort="+proxy.Port())
	}
	for i, o := range options {
		if options[i] = "-D" + o; strings.ContainsAny(o, " \t'\"") {
			options[i] = "'" + strings.ReplaceAll(options[i], "'", `'"'"'`) + "'"
		}
	}
	return strings.Join(options, " ")
}
