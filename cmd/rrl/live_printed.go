// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/goredisson/ratelimiter/internal/doctor"
	"github.com/urfave/cli/v3"
)

// printed returns the Redis as the commands name it that are printed. Raw is the URL that was given, whose user and kind may
// not be those of t.
func (t *target) printed(raw string) (p doctor.Target) {
	of, err := doctor.ParseTarget(raw)
	if err != nil {
		return p // it has been parsed before
	}
	switch {
	case t.single != nil:
		p = doctor.OfServer(t.single)
	case t.sentinel != nil:
		p = doctor.OfSentinels(t.sentinel)
	default:
		p = doctor.OfCluster(t.cluster)
	}
	p.TLS, p.Insecure, p.Options = of.TLS, of.Insecure, of.Options
	return p
}

// addFlags adds what flags of this command say that the printed ones need, too, with files by their whole paths.
func addFlags(c *cli.Command, p *doctor.Target) error {
	for name, file := range map[string]*string{"tls-ca": &p.CA, "tls-cert": &p.Cert, "tls-key": &p.Key} {
		if path := c.String(name); path != "" {
			var err error
			if *file, err = filepath.Abs(path); err != nil {
				return err
			}
		}
	}
	switch path := c.String("password-file"); {
	case path != "":
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		p.Flags = append(p.Flags, doctor.Flag("--password-file", path))
	case c.Bool("ask-password"):
		p.Flags = append(p.Flags, "--ask-password")
	}
	return nil
}
