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
	cert := ca.Certificate()
	return caText.Execute(stdout, map[string]any{"Cert": filepath.Join(dir, gateway.CACertFile), "Store": filepath.Join(dir, "truststore.p12"),
		"Until": cert.NotAfter.Format(time.DateOnly), "SHA": fmt.Sprintf("%X", sha256.Sum256(cert.Raw)), "Proxy": proxy, "Host": u.Hostname(), "Port": u.Port()})
}

//go:embed ca.txt
var caFile string

// caText is what clients need, a line for each.
var caText = template.Must(template.New("").Funcs(template.FuncMap{"sh": quoted}).Parse(caFile))

// quoted returns a word as a shell reads it: as it is if it has only characters that mean themselves.
func quoted(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:%+,@=", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
