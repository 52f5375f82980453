// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/ops/view"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/urfave/cli/v3"
)

// frameFormat is that of the frames that this version writes, and reads.
const frameFormat = 1

// A frame is one look of rrl record, a line of its file.
type frame struct {
	Format int           `json:"format"`
	At     time.Time     `json:"at"`
	All    int           `json:"all"` // limiters
	Rows   []recordedRow `json:"rows"`
	Away   string        `json:"away,omitempty"` // why there may be more
	Down   string        `json:"down,omitempty"` // why there are none
}

// A recordedRow is a row in a file. A name that is not UTF-8, which JSON cannot have, is in Raw.
type recordedRow struct {
	view.Row
	Raw []byte `json:"raw,omitempty"`
}

func recorded(rows []view.Row) []recordedRow {
	list := make([]recordedRow, len(rows))
	for i, r := range rows {
		if list[i].Row = r; !utf8.ValidString(r.Name) {
			list[i].Raw = []byte(r.Name)
		}
	}
	return list
}

// rows returns the rows of a frame: those of the limiter of that name, or all if it is empty.
func (f *frame) rows(name string) (list []view.Row) {
	for _, r := range f.Rows {
		if r.Raw != nil {
			r.Name = string(r.Raw)
		}
		if name == "" || name == r.Name {
			list = append(list, r.Row)
		}
	}
	return list
}

func recordCommand() *cli.Command {
	cmd := liveCommand("record", "keep what top would show in a file, for rrl replay", "FILE",
		"Looks as rrl top does, every five seconds, and adds the --rows limiters that hurt most to FILE, which is to be new.\n"+
			"It ends after --for, or with Ctrl-C. The names of limiters are in the file. Writes nothing to Redis.\n\n"+
			"Exit codes: 0 after --for or Ctrl-C, 1 a look cannot be written, or none was made, "+exitCodes+"\n"+
			"A FILE that exists, or cannot be made, is wrong usage.",
		[]cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only names that match `PATTERN`"}, sortFlag(""),
			&cli.DurationFlag{Name: "every", Value: 5 * time.Second, Usage: "`D` between two looks, at least 100ms"},
			&cli.DurationFlag{Name: "for", Usage: "end after `D`; 0 for never"},
			&cli.IntFlag{Name: "limit", Value: 1000, Usage: "look at `N` limiters each time; at all of them once a minute"},
			&cli.IntFlag{Name: "rows", Value: 50, Usage: "keep `N` of them"},
		}, runRecord)
	return withoutJSON(cmd)
}

func runRecord(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
	if c.NArg() != 1 || c.Duration("every") < 100*time.Millisecond || c.Int("limit") < 1 || c.Int("rows") < 1 || c.Duration("for") < 0 {
		return command.Usage("record takes one argument, a new file; --every is at least 100ms, --limit and --rows at least 1, --for not below 0")
	}
	by, err := orderOf(c)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.Args().First(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return command.Usage("%w", err)
	}
	frames := 0
	defer func() {
		if _ = file.Close(); frames == 0 {
			_ = os.Remove(file.Name()) // the next attempt needs a new file
		}
	}()
	if d := c.Duration("for"); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	t := &top{Survey: survey.New(rdb.UniversalClient), by: by, match: c.String("match"), most: c.Int("limit")}
	out := json.NewEncoder(file)
	for {
		rows, err := t.look(ctx)
		if ctx.Err() == nil {
			f := frame{Format: frameFormat, At: time.Now().UTC(), All: t.all, Away: t.away, Rows: recorded(rows[:min(c.Int("rows"), len(rows))])}
			if err != nil && (frames == 0 || !isDown(err)) {
				return err
			} else if err != nil {
				f.Down = oneLine(advise(err))
			}
			if err := out.Encode(f); err != nil {
				return err
			}
			frames++
		}
		if retry.Sleep(ctx, c.Duration("every")) != nil {
			if frames == 0 {
				return command.Error{Code: command.ExitFailed, Err: errors.New("it ended before the first look, and there is no file")}
			}
			fmt.Fprintf(c.Root().Writer, "%s has %s: rrl replay shows it\n", visible(c.Args().First()), permit.Counted(frames, "look"))
			return command.Error{Code: command.ExitOK, Err: file.Close()}
		}
	}
}

func replayCommand() *cli.Command {
	return &cli.Command{
		Name: "replay", Usage: "show a file of rrl record as rrl top would have", ArgsUsage: "FILE",
		Description: "It needs no Redis. With --every, a terminal shows one look at a time.\n\n" +
			"Exit codes: 0 shown, 1 the file is cut off, or none of rrl record, 2 wrong usage, or the file cannot be opened, 3 no look has what --match and --from say.",
		OnUsageError: command.OnUsageError, HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only the limiter `NAME`"}, sortFlag(""),
			&cli.StringFlag{Name: "from", Usage: "begin at `TIME`, by UTC, as in 14:05:00 or 2026-01-31T14:05:00Z"},
			&cli.DurationFlag{Name: "every", Usage: "`D` between two looks; 0 for none"},
			&cli.IntFlag{Name: "rows", Value: 20, Usage: "show `N` limiters, and no more than the terminal has room for"},
		},
		Action: runReplay,
	}
}

func runReplay(ctx context.Context, c *cli.Command) error {
	if c.NArg() != 1 || c.Int("rows") < 1 || c.Duration("every") < 0 {
		return command.Usage("replay takes one argument, a file of rrl record; --rows is at least 1, --every not below 0")
	}
	begun, err := beginning(c.String("from"))
	if err != nil {
		return err
	}
	by, err := orderOf(c)
	if err != nil {
		return err
	}
	file, err := os.Open(c.Args().First())
	if err != nil {
		return command.Usage("%w", err)
	}
	defer func() { _ = file.Close() }()
	in, match, found := json.NewDecoder(bufio.NewReader(file)), c.String("match"), false
	for {
		var f frame
		switch err := in.Decode(&f); {
		case err == io.EOF && found:
			return nil
		case err == io.EOF:
			return command.Error{Code: command.ExitAbsent, Err: fmt.Errorf("no look in %s is from then on, or has that limiter", visible(c.Args().First()))}
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%s is cut off: its last look is not whole", visible(c.Args().First()))
		case err == nil && f.Format != frameFormat:
			err = fmt.Errorf("a look has format %d, and this version reads %d", f.Format, frameFormat)
			fallthrough
		case err != nil:
			return fmt.Errorf("%s is no file of rrl record: %w", visible(c.Args().First()), err)
		case !begun(f.At.UTC()):
			continue
		}
		t := &top{out: c.Root().Writer, rows: c.Int("rows"), all: f.All, away: f.Away, at: f.At, still: c.Duration("every") == 0}
		rows := f.rows(match)
		found = found || match == "" || len(rows) > 0
		view.Sort(rows, by)
		if f.Down != "" {
			_, err = fmt.Fprintf(t.out, "%s  Redis does not reply: %s\n", f.At.UTC().Format("15:04:05Z"), visible(f.Down))
		} else if match == "" || len(rows) > 0 {
			err = t.show(rows, false)
		}
		if err != nil {
			return err
		}
		if retry.Sleep(ctx, c.Duration("every")) != nil {
			return command.Error{Code: command.ExitOK}
		}
	}
}

// beginning returns a function that reports whether a look is shown, for looks in their order: from the first one on that is at that time
// or later. A time of day is that of any day.
func beginning(from string) (func(at time.Time) bool, error) {
	if from == "" {
		return func(time.Time) bool { return true }, nil
	}
	for _, layout := range []string{time.TimeOnly, time.RFC3339} {
		first, err := time.Parse(layout, from)
		if err != nil {
			continue
		}
		begun := false
		return func(at time.Time) bool {
			if layout == time.TimeOnly {
				first = time.Date(at.Year(), at.Month(), at.Day(), first.Hour(), first.Minute(), first.Second(), 0, time.UTC)
			}
			begun = begun || !at.Before(first)
			return begun
		}, nil
	}
	return nil, command.Usage("--from %q is no time such as 14:05:00 or 2026-01-31T14:05:00Z", from)
}
