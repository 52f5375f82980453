// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"time"

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
	cert := filepath.Join(dir, gateway.CACertFile)
	store := filepath.Join(dir, "truststore.p12")
	_, err = fmt.Fprintf(stdout, caText, cert, ca.Certificate().NotAfter.Format(time.DateOnly), sha256.Sum256(ca.Certificate().Raw),
		proxy, proxy, cert,
		cert, cert,
		cert,
		store, cert, store, u.Hostname(), u.Port(), u.Hostname(), u.Port())
	return err
}

const caText = `# CA certificate: %s
# valid until %s, SHA-256 %X
# The key beside it stays on the gateway's machine. Clients need the certificate only.

# All but Java
export HTTPS_PROXY=%s HTTP_PROXY=%s
# Go (in place of the system's certificates)
export SSL_CERT_FILE=%s

# Python: urllib and httpx, then requests
export SSL_CERT_FILE=%s
export REQUESTS_CA_BUNDLE=%s

# Node.js (24 or later takes the proxy from the environment)
export NODE_USE_ENV_PROXY=1 NODE_EXTRA_CA_CERTS=%s

# Java (make the store once; it holds no secret)
# keytool -importcert -noprompt -alias rrl-gateway -storetype PKCS12 -storepass changeit -keystore %s -file %s
export JAVA_TOOL_OPTIONS="-Djavax.net.ssl.trustStore=%s -Djavax.net.ssl.trustStorePassword=changeit -Dhttps.proxyHost=%s -Dhttps.proxyPort=%s -Dhttp.proxyHost=%s -Dhttp.proxyPort=%s"
`
