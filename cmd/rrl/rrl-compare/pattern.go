// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	patternMostBytes    = 1 << 20
	patternMostRequests = 10_000 // each runs a script for each limiter
	patternMostTime     = time.Hour
	patternMostPermits  = 1<<32 - 1
)

// readPattern reads a pattern from a file. Its errors have the name of the file and the line in them.
func readPattern(name string) ([]burst, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parsePattern(name, f)
}

// parsePattern parses a pattern. Each line has a time, or two with .. between them, a number of requests
// and, if it is not 1, the number of permits of each request:
//
//	0s..5s 100   # evenly
//	1.5s 10      # at once
//	2s 1 8       # one request for 8 permits
func parsePattern(name string, r io.Reader) ([]burst, error) {
	src := io.LimitReader(r, patternMostBytes+1)
	lines := bufio.NewScanner(src)
	lines.Buffer(nil, patternMostBytes+2)
	var bursts []burst
	number, bytes, requests := 0, 0, 0
	for lines.Scan() {
		number++
		if bytes += len(lines.Bytes()) + 1; bytes > patternMostBytes {
			return nil, fmt.Errorf("%s:%d: the file has more than %d bytes", name, number, patternMostBytes)
		}
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		b, err := parseBurst(fields)
		if err == nil {
			if requests += b.count; requests > patternMostRequests {
				err = fmt.Errorf("more than %d requests so far", patternMostRequests)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		bursts = append(bursts, b)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(bursts) == 0 {
		return nil, fmt.Errorf("%s: there is no request in it", name)
	}
	return bursts, nil
}

func parseBurst(fields []string) (burst, error) {
	if len(fields) < 2 || len(fields) > 3 {
		return burst{}, fmt.Errorf("%q is not TIME COUNT [PERMITS]", strings.Join(fields, " "))
	}
	from, to, spread := strings.Cut(fields[0], "..")
	if !spread {
		to = from
	}
	b := burst{permits: 1}
	var err error
	if b.from, err = parseTime(from); err != nil {
		return burst{}, err
	}
	if b.to, err = parseTime(to); err != nil {
		return burst{}, err
	}
	if spread && b.to <= b.from {
		return burst{}, fmt.Errorf("%s does not end after it begins", fields[0])
	}
	count, err := parseCount("count", fields[1], patternMostRequests)
	if err != nil {
		return burst{}, err
	}
	b.count = int(count)
	if len(fields) == 3 {
		b.permits, err = parseCount("number of permits", fields[2], patternMostPermits)
	}
	return b, err
}

func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time such as 1.5s, 200ms or 1m30s", s)
	case d < 0 || d > patternMostTime:
		return 0, fmt.Errorf("time %s is not in 0s to %v", s, patternMostTime)
	case d%time.Microsecond != 0:
		return 0, fmt.Errorf("time %s is not a whole number of microseconds", s)
	}
	return d, nil
}

func parseCount(what, s string, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s %q is not a whole number", what, s)
	case err != nil || n < 1 || n > most:
		return 0, fmt.Errorf("%s %s is not in 1 to %d", what, s, most)
	}
	return n, nil
}
