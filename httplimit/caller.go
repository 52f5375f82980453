// SPDX-License-Identifier: Apache-2.0

package httplimit

import "net/http"

// A Caller sends the requests of an SDK of Alibaba Cloud or DingTalk through a RoundTripper, such as a [Transport].
// It implements the interface of Config.HttpClient in github.com/alibabacloud-go/darabonba-openapi/v2, from v2.1.13
// on.
type Caller struct {
	Transport http.RoundTripper
}

// Call sends the request and returns the errors of the RoundTripper unchanged. It ignores the SDK's transport, and
// with it the SDK's proxy and connect timeout; set them in the base of the Transport.
func (c Caller) Call(request *http.Request, _ *http.Transport) (*http.Response, error) {
	return c.Transport.RoundTrip(request)
}
