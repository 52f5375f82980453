// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// Frame reads one value of RESP. It appends the bytes of the value to raw and its bulk strings to words.
func Frame(in *bufio.Reader, raw []byte, words []string) ([]byte, []string, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return raw, words, err
	}
	raw = append(raw, line...)
	n := 0
	switch line[0] {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		if len(line) < 4 {
			return raw, words, fmt.Errorf("redistest: proxy: %q", line)
		}
		if n, err = strconv.Atoi(string(line[1 : len(line)-2])); err != nil {
			return raw, words, err
		}
	}
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return raw, words, nil
		}
		bulk := make([]byte, n+2)
		if _, err := io.ReadFull(in, bulk); err != nil {
			return raw, words, err
		}
		return append(raw, bulk...), append(words, string(bulk[:n])), nil
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1 // an attribute stands before the value that it belongs to
	}
	for range n {
		if raw, words, err = Frame(in, raw, words); err != nil {
			return raw, words, err
		}
	}
	return raw, words, nil
}
