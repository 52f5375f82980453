// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The files of a CA in its directory.
const (
	CACertFile = "ca.pem"
	CAKeyFile  = "ca-key.pem" // of mode 0600
)

const (
	caLife   = 5 * 365 * 24 * time.Hour
	leafLife = 7 * 24 * time.Hour
	skew     = time.Hour // by which a client's clock may be slow
	// maxLeaves is how many certificates are kept; a rule's *.example.com stands for any number of hosts.
	maxLeaves = 1024
)

// A CA signs the certificates with which a Gateway ends the TLS of its tunnels. Whoever has its key can impersonate
// any host to the clients that trust it. A CA is safe for concurrent use.
type CA struct {
	cert   *x509.Certificate
	key    crypto.Signer
	shared *ecdsa.PrivateKey // of all leaves

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// CreateCA makes a CA and writes its files into dir, which it creates if necessary. It returns an error if one of the
// files exists already.
func CreateCA(dir string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	now := time.Now()
	host, _ := os.Hostname() // only for people
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: ProxyName + " CA " + host + " " + now.Format(time.DateOnly)},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if err := writeNew(filepath.Join(dir, CAKeyFile), "PRIVATE KEY", keyDER, 0o600); err != nil {
		return nil, err
	}
	if err := writeNew(filepath.Join(dir, CACertFile), "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	return LoadCA(dir)
}

func writeNew(path, kind string, der []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Close())
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// LoadCA reads the CA in dir. It returns an error if users other than the owner may read the key, or if the CA has
// expired. If there is no CA, errors.Is(err, fs.ErrNotExist) holds.
func LoadCA(dir string) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, CACertFile), filepath.Join(dir, CAKeyFile)
	info, err := os.Stat(keyFile)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return nil, fmt.Errorf("gateway: %s has mode %#o, so others may read the CA's key: chmod 600 it, or make a new CA", keyFile, info.Mode().Perm())
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("gateway: the CA in %s: %w", dir, err)
	}
	ca := &CA{cert: pair.Leaf, leaves: map[string]*tls.Certificate{}}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !ca.cert.IsCA:
		return nil, fmt.Errorf("gateway: %s is no CA's certificate", certFile)
	case time.Now().After(ca.cert.NotAfter):
		return nil, fmt.Errorf("gateway: the CA of %s expired at %v: make a new one", certFile, ca.cert.NotAfter)
	}
	ca.key = signer
	if ca.shared, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return ca, nil
}

// Certificate returns the certificate that clients have to trust.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// leaf returns a certificate for the host, which may be an address. It signs a new one if it has none that stays
// valid long enough.
func (ca *CA) leaf(host string) (*tls.Certificate, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	now := time.Now()
	if c := ca.leaves[host]; c != nil && now.Add(leafLife/2).Before(c.Leaf.NotAfter) {
		return c, nil
	}
	template := &x509.Certificate{
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()} // a certificate has no zones
	} else {
		template.DNSNames = []string{host}
	}
	der, err := sign(template, ca.cert, ca.shared.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if len(ca.leaves) >= maxLeaves {
		clear(ca.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: ca.shared, Leaf: parsed}
	ca.leaves[host] = c
	return c, nil
}

// sign signs a certificate with a serial number of its own.
func sign(template, parent *x509.Certificate, public any, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return der, nil
}
