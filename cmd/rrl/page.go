// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goredisson/ratelimiter/cmd/rrl/internal/command"
	"github.com/goredisson/ratelimiter/internal/http/textfile"
	"github.com/goredisson/ratelimiter/internal/permit"
	"github.com/goredisson/ratelimiter/ratelimiterpage"
	"github.com/urfave/cli/v3"
)

func pageCommand() *cli.Command {
	cmd := liveCommand("page", "serve a web page with the limiters of a Redis", " ",
		"Shows what ls, inspect, watch and doctor show, in a browser: a list to filter, sort and page, the window of a\n"+
			"limiter as a timeline that moves, and what is wrong. Reads Redis only while somebody looks, and writes\n"+
			"nothing without --write.\n\n"+
			"By default only this machine can open it. On any other address everybody needs a token, which comes\n"+
			"from --token-file or the environment variable RRL_PAGE_TOKEN: the browser asks for it as a password, and any\n"+
			"user name does. Put a proxy that speaks TLS in front of it.\n\n"+
			"Exit codes: 0 after Ctrl-C, 1 it cannot listen, 2 wrong usage, 4 Redis cannot be reached at the start.",
		[]cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:7380", Usage: "`HOST:PORT`; port 0 for any that is free"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` whose first line is the token, of at least 16 bytes"},
			&cli.BoolFlag{Name: "write", Usage: "let those who type the token change limiters"},
			&cli.StringFlag{Name: "title", Usage: "`TEXT` that names the Redis on the page; default: its address"},
		}, runPage)
	return withoutJSON(cmd)
}

// withoutJSON returns a command that writes no JSON.
func withoutJSON(cmd *cli.Command) *cli.Command {
	cmd.Flags = slices.DeleteFunc(cmd.Flags, func(f cli.Flag) bool { return f.Names()[0] == "json" })
	return cmd
}

func runPage(ctx context.Context, c *cli.Command, rdb *liveRedis) error {
	if err := command.NoArguments(c); err != nil {
		return err
	}
	token, err := pageToken(c)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(c.String("listen"))
	if err != nil {
		return command.Usage("--listen %q is no HOST:PORT", c.String("listen"))
	}
	local := isLoopback(host)
	switch {
	case token == "" && !local:
		return command.Usage("--listen %s can be reached from other machines, so it needs a token: --token-file FILE, or RRL_PAGE_TOKEN", c.String("listen"))
	case token == "" && c.Bool("write"):
		return command.Usage("--write needs a token: --token-file FILE, or RRL_PAGE_TOKEN")
	}
	title := c.String("title")
	if title == "" {
		title = rdb.where
	}
	log := slog.New(slog.NewTextHandler(c.Root().ErrWriter, nil))
	opts := []ratelimiterpage.Option{ratelimiterpage.WithTitle(title), ratelimiterpage.WithLogger(log),
		ratelimiterpage.WithRedisURL(rdb.to.URL()), ratelimiterpage.WithTLSFiles(rdb.to.CA, rdb.to.Cert, rdb.to.Key)}
	if token != "" {
		opts = append(opts, ratelimiterpage.WithToken(token))
	}
	if c.Bool("write") {
		opts = append(opts, ratelimiterpage.WithWrites(token))
	}
	page, err := ratelimiterpage.New(rdb.UniversalClient, opts...)
	if err != nil {
		return command.Usage("%w", err)
	}
	defer func() { _ = page.Close() }()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.String("listen"))
	if err != nil {
		return command.Error{Code: command.ExitFailed, Err: fmt.Errorf("--listen: %w", err)} // a network error, but not of Redis
	}
	var handler http.Handler = page
	if local && token == "" {
		handler = onlyLocalNames(page)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	fmt.Fprintf(c.Root().Writer, "http://%s/ shows the limiters of %s; Ctrl-C ends it\n", listener.Addr(), visible(rdb.where))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
	}
	_ = page.Close() // ends the searches of all keys
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = server.Shutdown(end)
	return command.Error{Code: command.ExitOK}
}

// pageToken returns the token of the flag's file or of the environment, or nothing.
func pageToken(c *cli.Command) (string, error) {
	token := os.Getenv("RRL_PAGE_TOKEN")
	if path := c.String("token-file"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", command.Usage("--token-file: %w", err)
		}
		if token, err = textfile.FirstLine(text); err != nil {
			return "", command.Usage("--token-file %s: %w", path, err)
		}
		if token == "" {
			return "", command.Usage("--token-file: the first line of %s is empty", path)
		}
	}
	if token != "" && len(token) < ratelimiterpage.MinToken {
		return "", command.Usage("the token has %s; it has at least %d", permit.Counted(len(token), "byte"), ratelimiterpage.MinToken)
	}
	return token, nil
}

// isLoopback reports whether only this machine reaches a host to listen on. An empty host is all addresses.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// onlyLocalNames rejects requests that name another host than this machine. The page of a site whose name was made to
// point to this machine could otherwise read what is shown here.
func onlyLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !isLoopback(strings.Trim(host, "[]")) {
			http.Error(w, "this page is for this machine only; with a token it is for others, too", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
