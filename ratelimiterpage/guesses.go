// SPDX-License-Identifier: Apache-2.0

package ratelimiterpage

import (
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// guessPause is how long the reply to a wrong token takes.
	guessPause = time.Second
	// mostGuesses is how many such replies are held back at once. While there are as many, no token is looked at.
	mostGuesses = 256
)

// guesses counts the replies to wrong tokens that are held back.
type guesses struct{ n atomic.Int64 }

// busy rejects a request while too many wrong tokens wait for their replies. It reports false if there are not.
func (g *guesses) busy(w http.ResponseWriter) bool {
	if g.n.Load() < mostGuesses {
		return false
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many wrong tokens", http.StatusTooManyRequests)
	return true
}

// wrong logs a wrong token, and holds up the reply to it.
func (h *Handler) wrong(r *http.Request, what string) {
	h.log.Warn("ratelimiterpage: a wrong token", "for", what, "remote", r.RemoteAddr)
	h.guesses.n.Add(1)
	defer h.guesses.n.Add(-1)
	timer := time.NewTimer(guessPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-h.ctx.Done():
	}
}
