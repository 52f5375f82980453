// SPDX-License-Identifier: Apache-2.0

package httplimit

import "net/http"

// A Caller sends the requests of an SDK of Alibaba Cloud or DingTalk through a RoundTripper, such as a [Transport]. It
// has the method that their hook asks for, Config.HttpClient of github.com/alibabacloud-go/darabonba-openapi/v2 from
// v2.1.13 on.
type Caller struct {
	Transport http.RoundTripper
}

// Call sends the request, and returns the errors of the Transport unchanged. It does not use the SDK's transport, which
// has the SDK's proxy and its time to connect: what is wanted of them is set in the base of the Transport.
func (c Caller) Call(request *http.Request, _ *http.Transport) (*http.Response, error) {
	return c.Transport.RoundTrip(request)
}
