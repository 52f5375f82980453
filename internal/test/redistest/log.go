// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Log keeps the end of what a program writes, for tests that read it meanwhile and for error messages. Its zero value is empty.
type Log struct {
	mu   sync.Mutex
	text []byte
}

const logSize = 1 << 20

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if extra := len(l.text) - logSize; extra > 0 {
		l.text = append(l.text[:0], l.text[extra:]...)
	}
	return len(p), nil
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Await waits for text that matches a pattern, and returns the match and its groups.
func (l *Log) Await(t testing.TB, pattern string) []string {
	t.Helper()
	what := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if m := what.FindStringSubmatch(l.String()); m != nil {
			return m
		}
		require.True(t, time.Now().Before(deadline), "no %s in:\n%s", pattern, l)
	}
}
