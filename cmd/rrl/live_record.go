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

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/retry"
	"github.com/goredisson/ratelimiter/internal/survey"
	"github.com/goredisson/ratelimiter/internal/view"
	"github.com/urfave/cli/v3"
)

// A frame is one look of rrl record, a line of its file. Frames are read by the version of rrl that has written them.
type frame struct {
	At   time.Time  `json:"at"`
	All  int        `json:"all"` // limiters
	Rows []view.Row `json:"rows"`
	Down string     `json:"down,omitempty"` // why there are none
}

func recordCommand() *cli.Command {
	cmd := liveCommand("record", "keep what top would show in a file, for rrl replay", "FILE",
		"Looks as rrl top does, every five seconds, and adds the --rows limiters that hurt most to FILE, which is to be new.\n"+
			"It ends after --for, or with Ctrl-C. The names of limiters are in the file. Writes nothing to Redis.\n\n"+
			"Exit codes: 0 after --for or Ctrl-C, 1 the file cannot be written, "+exitCodes,
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
		return command.UsageError{Err: errors.New("record takes one argument, a new file; --every is at least 100ms, --limit and --rows at least 1, --for not below 0")}
	}
	by, err := orderOf(c)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.Args().First(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return command.UsageError{Err: err}
	}
	defer func() { _ = file.Close() }()
	if d := c.Duration("for"); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	t := &top{Survey: survey.New(rdb.UniversalClient), by: by, match: c.String("match"), most: c.Int("limit")}
	out := json.NewEncoder(file)
	for frames := 0; ; {
		rows, err := t.look(ctx)
		if ctx.Err() == nil {
			f := frame{At: time.Now().UTC(), All: t.all, Rows: rows[:min(c.Int("rows"), len(rows))]}
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
			fmt.Fprintf(c.Root().Writer, "%d looks are in %s: rrl replay shows them\n", frames, visible(c.Args().First()))
			return command.ExitError{Code: command.ExitOK, Err: file.Close()}
		}
	}
}

func replayCommand() *cli.Command {
	return &cli.Command{
		Name: "replay", Usage: "show a file of rrl record as rrl top would have", ArgsUsage: "FILE",
		Description:  "It needs no Redis.\n\nExit codes: 0 shown, 1 the file cannot be read, 2 wrong usage.",
		OnUsageError: command.OnUsageError, HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "match", Usage: "only the limiter `NAME`"}, sortFlag(""),
			&cli.StringFlag{Name: "from", Usage: "begin at `TIME`, as in 14:05:00, by UTC"},
			&cli.DurationFlag{Name: "every", Usage: "`D` between two looks; 0 for none"},
			&cli.IntFlag{Name: "rows", Value: 20, Usage: "show `N` limiters, and no more than the terminal has room for"},
		},
		Action: runReplay,
	}
}

func runReplay(ctx context.Context, c *cli.Command) error {
	if c.NArg() != 1 || c.Int("rows") < 1 {
		return command.UsageError{Err: errors.New("replay takes one argument, a file of rrl record; --rows is at least 1")}
	}
	by, err := orderOf(c)
	if err != nil {
		return err
	}
	file, err := os.Open(c.Args().First())
	if err != nil {
		return command.UsageError{Err: err}
	}
	defer func() { _ = file.Close() }()
	in := json.NewDecoder(bufio.NewReader(file))
	for {
		var f frame
		switch err := in.Decode(&f); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%s is no file of rrl record: %w", visible(c.Args().First()), err)
		case f.At.UTC().Format("15:04:05") < c.String("from"):
			continue
		}
		t := &top{out: c.Root().Writer, rows: c.Int("rows"), all: f.All, first: f.Rows, swept: f.At, at: f.At}
		var rows []view.Row
		for _, r := range f.Rows {
			if name := c.String("match"); name == "" || name == r.Name {
				rows = append(rows, r)
			}
		}
		view.Sort(rows, by)
		if f.Down != "" {
			_, err = fmt.Fprintf(t.out, "%s  Redis does not reply: %s\n", f.At.UTC().Format("15:04:05Z"), visible(f.Down))
		} else {
			err = t.show(rows, false)
		}
		if err != nil {
			return err
		}
		if retry.Sleep(ctx, c.Duration("every")) != nil {
			return command.ExitError{Code: command.ExitOK}
		}
	}
}
