// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Certificate is the certificate of a server or a client on 127.0.0.1, with its key, in memory and in two PEM files.
type Certificate struct {
	tls.Certificate
	CertFile, KeyFile string
}

// NewCertificate makes a certificate for an hour, which parent signs or, if that is nil, the certificate itself.
func NewCertificate(t testing.TB, parent *Certificate) *Certificate {
	t.Helper()
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	serial := big.NewInt(time.Now().UnixNano())
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signerKey := template, any(key)
	if parent != nil {
		signer, signerKey = parent.Leaf, parent.PrivateKey
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey))(t)
	pkcs8 := Must(x509.MarshalPKCS8PrivateKey(key))(t)
	dir := t.TempDir()
	c := &Certificate{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	require.NoError(t, os.WriteFile(c.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(c.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	c.Certificate = Must(tls.LoadX509KeyPair(c.CertFile, c.KeyFile))(t)
	return c
}
