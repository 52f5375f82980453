// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"github.com/urfave/cli/v3"
)

// errEmpty is the error of a flag whose value, or one of whose values, is empty. A command line such as --client-ca "$CA"
// gives one if the variable is not set, and must not do what it would do without the flag. cmd/rrl-gateway has the same.
var errEmpty = errors.New("a value is empty")

// emptyValue is how package cli begins the error of a flag with an empty value.
var emptyValue = regexp.MustCompile(`^invalid value "" for flag -([^:]+):`)

// flagWithout is an argument that gives a flag an empty value.
var flagWithout = regexp.MustCompile(`^--?([^-=][^=]*)=$`)

// runStrictly runs app. An empty value of any flag of any command is wrong usage. An environment variable that is empty
// counts as one that is not set.
func runStrictly(ctx context.Context, app *cli.Command, args []string) error {
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if flag := flagWithout.FindStringSubmatch(arg); flag != nil { // of a flag without a value, package cli would make true
			return emptyFlag(flag[1])
		}
	}
	rejectEmpty(app)
	return app.Run(ctx, args)
}

func emptyFlag(name string) error {
	return Usage("--%s is empty: give it a value, or leave it out", name)
}

// rejectEmpty makes an empty value of any flag of c, and of the commands below it, an error.
func rejectEmpty(c *cli.Command) {
	for _, f := range c.Flags {
		switch f := f.(type) {
		case *cli.StringFlag:
			f.Validator = func(s string) error { return notEmpty(s) }
			for i, source := range f.Sources.Chain {
				f.Sources.Chain[i] = nonEmpty{source, source.(cli.EnvValueSource)}
			}
		case *cli.StringSliceFlag:
			f.Validator = func(list []string) error { return notEmpty(list...) }
		}
	}
	for _, sub := range c.Commands {
		rejectEmpty(sub)
	}
}

func notEmpty(values ...string) error {
	if slices.Contains(values, "") {
		return errEmpty
	}
	return nil
}

// A nonEmpty is an environment variable that is not there if it is empty.
type nonEmpty struct {
	cli.ValueSource
	cli.EnvValueSource // for the help
}

func (v nonEmpty) Lookup() (string, bool) {
	s, found := v.ValueSource.Lookup()
	return s, found && s != ""
}
