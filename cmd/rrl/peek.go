// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/cmd/rrl/internal/term"
	"github.com/goredisson/ratelimiter/internal/ops/survey"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/urfave/cli/v3"
)

func peekCommand() *cli.Command {
	return liveCommand("peek", "predict the result of asking for N permits", "NAME N",
		"Follows the limiter's state at one instant, and takes nothing. Where callers wait, it says how long a new one\n"+
			"waits behind them, if each of them asks for one permit. Writes nothing, and needs no script.\n\n"+
			"Exit codes: 0 they would be granted at once, 1 the caller would wait, or more are asked for than the rate has,\n"+
			exitCodes,
		[]cli.Flag{&cli.StringFlag{Name: "client", Usage: "the permits of the client with that `ID` of a PER_CLIENT limiter"}},
		func(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
			if c.NArg() != 2 || c.Args().First() == "" {
				return command.Usage("peek takes the name of a limiter and a number of permits")
			}
			name, err := firstName(c)
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(c.Args().Get(1), 10, 64)
			if err != nil {
				return command.Usage("%q is no number of permits", c.Args().Get(1))
			}
			s := survey.New(rdb.UniversalClient)
			st, err := s.Read(ctx, name, c.String("client"))
			if err != nil {
				return err
			}
			if err := askable(st, rdb); err != nil {
				return err
			}
			pk, err := st.Peek(n)
			if err == nil && !pk.Known {
				if _, err = s.Complete(ctx, st); err == nil {
					pk, err = st.Peek(n)
				}
			}
			if errors.Is(err, permit.ErrInvalidArgument) {
				return command.Usage("%w", err)
			}
			if err != nil {
				return err
			}
			out, waiting, wait := c.Root().Writer, st.Waiting().Callers, ""
			queued := pk.Wait
			if waiting > 0 {
				queued = st.Behind(waiting, n, pk)
				wait = fmt.Sprintf("; %d already waiting", waiting)
			}
			switch asked := permit.Counted(n, "permit"); {
			case c.Bool("json"):
				o := prediction{Asked: n, Granted: pk.Granted(), Available: pk.Available, WaitsFor: pk.Why, Waiting: waiting}
				if pk.Known {
					ms := func(d time.Duration) *int64 { n := (d + time.Millisecond - 1).Milliseconds(); return &n }
					o.WaitMS, o.QueuedMS = ms(pk.Wait), ms(queued)
				}
				err = term.EncodeJSON(out, o)
			case !pk.Known:
				_, err = fmt.Fprintf(out, "%s: not known, because the set is too large to follow%s\n", asked, wait)
			case pk.Wait > 0 && waiting > 0:
				_, err = fmt.Fprintf(out, "%s: wait about %s behind %s, %s if nobody waited, because of %s; %d available\n", asked, brief(queued),
					permit.Counted(waiting, "caller"), brief(pk.Wait), pk.Why, pk.Available)
			case pk.Wait == 0:
				_, err = fmt.Fprintf(out, "%s: granted at once, %d available%s\n", asked, pk.Available, wait)
			default:
				_, err = fmt.Fprintf(out, "%s: wait %s, because of %s; %d available%s\n", asked, brief(pk.Wait), pk.Why, pk.Available, wait)
			}
			if err == nil && !pk.Granted() {
				err = command.Error{Code: command.ExitFailed}
			}
			return err
		})
}

// A prediction is what peek writes in JSON.
type prediction struct {
	Asked     int64  `json:"asked"` // permits
	Granted   bool   `json:"granted"`
	Available int64  `json:"available"`
	WaitMS    *int64 `json:"wait_ms,omitempty"`            // absent if it is not known
	QueuedMS  *int64 `json:"new_caller_wait_ms,omitempty"` // about, behind those that wait; absent if it is not known
	WaitsFor  string `json:"waits_for,omitempty"`
	Waiting   int64  `json:"waiting"` // callers of Go that wait already
}
