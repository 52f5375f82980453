// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/goredisson/ratelimiter/internal/ops/doctor"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/urfave/cli/v3"
)

func diffCommand() *cli.Command {
	return liveCommand("diff", "compare the rates in Redis with those of a rule file", "FILE",
		"FILE is a rule file of httplimit, or one that rrl export wrote. A limiter keeps the rate that it has in\n"+
			"Redis, so a change of a file or of a profile has no effect until somebody sets the rate. A part in\n"+
			"braces of a name in the file stands for any text. Limits without a rate are not compared. Writes\n"+
			"nothing, and needs no script.\n\n"+
			"Exit codes: 0 no differences, 1 differences, 2 it could not look or wrong usage, 4 Redis cannot be reached.",
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only limiters whose names match `PATTERN`"},
			&cli.BoolFlag{Name: "others", Usage: "also limiters that the file does not have"},
		}, runDiff)
}

// A wanted is a limit of a file.
type wanted struct {
	text  string         // the name as the file has it
	name  string         // the limiter's name; empty if it has parts of a request in it
	match *regexp.Regexp // of the limiters' names
	rate  ratelimiter.Rate
	found bool
}

// A drift is a difference between the file and Redis.
type drift struct {
	Limiter string     `json:"limiter"`
	Base64  string     `json:"limiter_base64,omitempty"` // if its name has bytes that cannot be printed
	What    string     `json:"what"`                     // differs, absent, other, malformed
	File    string     `json:"file,omitempty"`
	Redis   string     `json:"redis,omitempty"`
	Fix     doctor.Cmd `json:"fix,omitempty"`
	If      string     `json:"if,omitempty"` // the condition of Fix, which only somebody who knows the services can say

	want permit.Rate // that of the file
}

func runDiff(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
	if c.NArg() != 1 {
		return command.Usage("diff takes one argument, a rule file")
	}
	want, err := readWanted(c.Args().First())
	if err != nil {
		return err
	}
	out, asJSON, n := c.Root().Writer, c.Bool("json"), 0
	report := func(d drift) error {
		n++
		if d.Base64 = survey.Base64(d.Limiter); asJSON {
			return term.EncodeJSON(out, d)
		}
		return writeDrift(out, d)
	}
	same, s := 0, survey.New(rdb.UniversalClient)
	for l, err := range s.Find(ctx, survey.Query{Match: c.String("match")}) {
		if err != nil {
			return err
		}
		if l.Kind != survey.Live {
			continue
		}
		d := compareRate(want, rdb.to, l.State)
		if d == nil {
			same++
			continue
		}
		if d.What == "other" && !c.Bool("others") {
			continue
		}
		if err := report(*d); err != nil {
			return err
		}
	}
	for _, w := range want {
		if w.name != "" && !w.found && c.String("match") == "" {
			l, err := s.Read(ctx, w.name, "")
			if err != nil {
				return err
			}
			d := drift{Limiter: w.name, What: "absent", File: w.rate.String(), Fix: setRateCommand(rdb.to, w.name, w.rate, "--create")}
			if l.Types[0] != "none" { // a part of a hash, or what somebody else has there
				d.What, d.Redis, d.Fix = "malformed", "a key that is no limiter", rdb.to.Command("doctor", []string{w.name})
			}
			if err := report(d); err != nil {
				return err
			}
		}
	}
	if note := rdb.to.Note().String(); n > 0 && !asJSON && note != "" {
		fmt.Fprintln(out, visible(note))
	}
	if n > 0 {
		return command.Error{Code: exitSick}
	}
	if !asJSON {
		_, err = fmt.Fprintf(out, "no differences in %s\n", permit.Counted(same, "limiter"))
	}
	return err
}

// compareRate compares a limiter with the limits of the file that have its name. It returns nil if one of them has its
// rate.
func compareRate(want []*wanted, to doctor.Target, l *survey.State) *drift {
	var named *wanted
	for _, w := range want {
		if !w.match.MatchString(l.Name) {
			continue
		}
		w.found = true
		if l.Problem == nil && sameRate(w.rate, l.Rate) {
			return nil
		}
		if named == nil || w.name != "" {
			named = w
		}
	}
	if named == nil {
		return &drift{Limiter: l.Name, What: "other", Redis: l.Rate.String()}
	}
	r := named.rate
	d := &drift{Limiter: l.Name, What: "differs", File: r.String(), Redis: l.Rate.String(), Fix: setRateCommand(to, l.Name, r),
		want: permit.Rate{Type: permit.Type(r.Type), Permits: r.Permits, Interval: r.Interval, KeepAlive: r.KeepAlive, MinGap: r.MinGap}}
	if l.Problem != nil {
		d.What, d.Redis = "malformed", oneLine(l.Problem)
	}
	d.If = doctor.ConditionOf(d.want, l).String()
	return d
}

func sameRate(a ratelimiter.Rate, b permit.Rate) bool {
	return int(a.Type) == int(b.Type) && a.Permits == b.Permits && a.Interval == b.Interval && a.KeepAlive == b.KeepAlive && a.MinGap == b.MinGap
}

// setRateCommand returns the command that gives a limiter a rate.
func setRateCommand(to doctor.Target, name string, r ratelimiter.Rate, flags ...string) doctor.Cmd {
	return to.Command("set-rate", []string{name}, append(flags, fmt.Sprintf("--type %s --permits %d --interval %v --keep-alive %v --min-gap %v --write",
		strings.ToLower(r.Type.String()), r.Permits, r.Interval, r.KeepAlive, r.MinGap))...)
}

func writeDrift(out io.Writer, d drift) error {
	var err error
	fix := visible(string(d.Fix))
	if d.If != "" {
		fix = "if " + d.If + ": " + fix
	}
	switch d.What {
	case "absent":
		_, err = fmt.Fprintf(out, "%s: not in Redis; the file has %s\n    fix: %s\n", visibleName(d.Limiter), d.File, fix)
	case "other":
		_, err = fmt.Fprintf(out, "%s: not in the file; Redis has %s\n", visibleName(d.Limiter), d.Redis)
	default:
		_, err = fmt.Fprintf(out, "%s: Redis has %s; the file has %s\n    fix: %s\n", visibleName(d.Limiter), visible(d.Redis), d.File, fix)
	}
	return err
}

// readWanted returns the limits of a rule file that have a rate.
func readWanted(path string) ([]*wanted, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, command.Usage("%w", err)
	}
	rules, err := rulefile.Parse(text)
	if err != nil {
		return nil, command.Usage("%s: %w", path, err)
	}
	want, err := wantedOf(rules)
	if err != nil {
		return nil, command.Usage("%s: %w", path, err)
	}
	return want, nil
}

// wantedOf returns the limits of rules that have a rate.
func wantedOf(rules []httplimit.Rule) ([]*wanted, error) {
	var list []*wanted
	for _, r := range rules {
		for _, limit := range r.Limits {
			if limit.Rate == (ratelimiter.Rate{}) {
				continue
			}
			w, err := wantedName(limit.Name)
			if limit.Key != nil {
				w, err = keyedName(limit.Key)
			}
			if err != nil {
				return nil, err
			}
			w.rate = limit.Rate
			list = append(list, w)
		}
	}
	if len(list) == 0 && !slices.ContainsFunc(rules, func(r httplimit.Rule) bool { return slices.Equal(r.Match.Hosts, []string{exportHost}) }) {
		return nil, errors.New("no limit in it has a rate")
	}
	return list, nil
}

// wantedName parses the name of a limit, in which {…} is a part of a request, and {{ and }} are braces.
func wantedName(text string) (*wanted, error) {
	var pattern, name strings.Builder
	parts := false
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			pattern.WriteString(regexp.QuoteMeta(rest[:1]))
			name.WriteString(rest[:1])
			rest = rest[2:]
		case rest[0] == '{':
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return nil, fmt.Errorf("the name %q has a brace that is not closed", text)
			}
			pattern.WriteString(".*")
			parts, rest = true, rest[end+1:]
		default:
			next := strings.IndexAny(rest[1:], "{}") + 1
			if next == 0 {
				next = len(rest)
			}
			pattern.WriteString(regexp.QuoteMeta(rest[:next]))
			name.WriteString(rest[:next])
			rest = rest[next:]
		}
	}
	match, err := regexp.Compile("(?s)^" + pattern.String() + "$")
	if err != nil {
		return nil, fmt.Errorf("the name %q: %w", text, err)
	}
	w := &wanted{text: text, match: match}
	if !parts {
		w.name = name.String()
	}
	return w, nil
}

// keyedName returns the limit of a profile whose limiters a function names: it has what the names of different requests begin and
// end with.
func keyedName(key func(*http.Request) string) (*wanted, error) {
	a, err := http.NewRequest(http.MethodGet, "https://a.invalid/a", nil)
	if err != nil {
		return nil, err
	}
	b, err := http.NewRequest(http.MethodPost, "https://b.invalid/v1.0/b/c/d", nil)
	if err != nil {
		return nil, err
	}
	first, second := key(a), key(b)
	begin, end := 0, 0
	for begin < min(len(first), len(second)) && first[begin] == second[begin] {
		begin++
	}
	for end < min(len(first), len(second))-begin && first[len(first)-1-end] == second[len(second)-1-end] {
		end++
	}
	match, err := regexp.Compile("(?s)^" + regexp.QuoteMeta(first[:begin]) + ".*" + regexp.QuoteMeta(first[len(first)-end:]) + "$")
	return &wanted{text: first[:begin] + "{…}" + first[len(first)-end:], match: match}, err
}

// What is around the limits in a file that export writes. The host is one that no request has. A rule without limits
// needs a detector.
const (
	exportHost  = "export.invalid"
	exportBegin = `{"rules":[{"name":"exported by rrl","match":{"hosts":["` + exportHost + `"]},"limits":[`
	exportEnd   = "]}]}"
	exportEmpty = `],"detectors":["http"]}]}`
)

var errNotUTF8 = errors.New("the name is not UTF-8, which a file cannot have")

// inFile returns why a file cannot have a limiter as it is in Redis, or nil: Java may set what rule files reject.
func inFile(l *survey.Limiter) error {
	if !utf8.ValidString(l.Name) {
		return errNotUTF8
	}
	text, err := json.Marshal(exported(l))
	if err == nil {
		_, err = rulefile.Parse([]byte(exportBegin + string(text) + exportEnd))
	}
	var wrong *rulefile.Error
	if errors.As(err, &wrong) {
		return fmt.Errorf("a rule file cannot have it: %s: %s", strings.TrimPrefix(wrong.Field, "rules[0].limits[0]."), wrong.Problem)
	}
	return err
}

func exportCommand() *cli.Command {
	return liveCommand("export", "write the rates in Redis as a file for rrl diff", " ",
		"The file is JSON in the form of httplimit's rule files, and matches no request. rrl diff reads files of\n"+
			"at most 1 MiB, which are some 8000 limiters; --match makes several. Permits in use are not in it.\n"+
			"It leaves out a limiter that a rule file cannot have: with more than 4294967295 permits, as Java may set it,\n"+
			"or with a name that is empty or not UTF-8. Writes nothing to Redis, and needs no script.\n\n"+
			"Exit codes: 0 all limiters were written, 1 some are left out and named, "+exitCodes,
		[]cli.Flag{&cli.StringFlag{Name: "match", Usage: "only limiters whose names match `PATTERN`"}},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			out := c.Root().Writer
			fmt.Fprint(out, exportBegin)
			comma, end := "\n", exportEmpty
			var errs []error
			for l, err := range survey.New(rdb.UniversalClient).Find(ctx, survey.Query{Match: c.String("match")}) {
				if err != nil {
					if errs = append(errs, err); ctx.Err() != nil {
						return command.ErrInterrupted
					}
					continue
				}
				if l.Kind != survey.Live {
					continue
				}
				err := l.Problem
				if err == nil {
					err = inFile(l)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%q: %w", l.Name, err))
					continue
				}
				fmt.Fprint(out, comma)
				comma, end = ",", exportEnd
				if err := term.EncodeJSON(out, exported(l)); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintln(out, end); err != nil {
				return err
			}
			if len(errs) > 0 {
				return command.Error{Code: command.ExitFailed, Err: fmt.Errorf("the file is not complete: %w", errors.Join(errs...))}
			}
			return nil
		})
}

// jsonLimit is a limit of a rule file.
type jsonLimit struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Permits   int64  `json:"permits"`
	Interval  string `json:"interval"`
	KeepAlive string `json:"keep_alive,omitempty"`
	MinGap    string `json:"min_gap,omitempty"`
}

func exported(l *survey.Limiter) jsonLimit {
	o := jsonLimit{Name: strings.NewReplacer("{", "{{", "}", "}}").Replace(l.Name), Type: strings.ToLower(l.Rate.Type.String()),
		Permits: l.Rate.Permits, Interval: l.Rate.Interval.String()}
	if l.Rate.KeepAlive > 0 {
		o.KeepAlive = l.Rate.KeepAlive.String()
	}
	if l.Rate.MinGap > 0 {
		o.MinGap = l.Rate.MinGap.String()
	}
	return o
}
