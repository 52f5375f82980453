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
	"unicode"

	"github.com/goredisson/ratelimiter/internal/gateway"
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
var caText = template.Must(template.New("").Funcs(template.FuncMap{"sh": quoted}).Parse(caFile))

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

// quoted returns a word as a shell reads it: as it is if it has only characters that mean themselves.
func quoted(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:%+,@=", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
