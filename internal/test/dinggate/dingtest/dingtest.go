// SPDX-License-Identifier: Apache-2.0

// Package dingtest has tests call a gateway of package dinggate.
package dingtest

import (
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/goredisson/ratelimiter/internal/test/dinggate"
)

// Direct returns a RoundTripper that hands every request to the gate, whatever its host, without a network. All come from one
// address.
func Direct(gate *dinggate.Gate) http.RoundTripper { return direct{gate} }

type direct struct{ gate *dinggate.Gate }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w, server := httptest.NewRecorder(), r.Clone(r.Context())
	server.RemoteAddr = "192.0.2.1:1234"
	d.gate.ServeHTTP(w, server)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// DingTalk is the URL of the platform.
const DingTalk = "https://oapi.dingtalk.com"

// Send sends a message to a custom robot of the platform at the URL base.
func Send(c *http.Client, base, token string) error {
	resp, err := c.Post(base+"/robot/send?access_token="+token, "application/json", strings.NewReader(`{"msgtype":"text","text":{"content":"x"}}`))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
