// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/http"
	"time"

	"github.com/goredisson/ratelimiter/httplimit"
)

// S3Detector returns a Detector of the rejections of object stores that respond as Amazon S3 does. A rejection is
// HTTP 503 with an XML error whose Code is SlowDown or ServiceUnavailable. It also detects Alibaba Cloud's OSS, with
// its codes for too many requests or too much traffic, of which QpsLimitExceeded comes with 429. The response to a
// HEAD has no body; there 503 with the store's request id is a rejection. Until is that of Retry-After, or zero
// without it. (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html,
// https://help.aliyun.com/en/oss/user-guide/http-status-code-503,
// https://www.alibabacloud.com/help/zh/oss/support/429-error)
func S3Detector() httplimit.Detector {
	const codes = "SlowDown|ServiceUnavailable|*QpsLimitExceeded|*TrafficRateLimitExceeded"
	stores := httplimit.First(
		httplimit.Signature{Status: []int{http.StatusServiceUnavailable}, Header: map[string]string{"X-Amz-Request-Id": "*"}},
		httplimit.Signature{Status: []int{http.StatusServiceUnavailable}, Header: map[string]string{"X-Oss-Request-Id": "*"}},
	)
	bodyless := detector(func(r answer) httplimit.Verdict {
		if r.Request == nil || r.Request.Method != http.MethodHead {
			return httplimit.Verdict{}
		}
		return stores.Detect(r.Response)
	})
	never := func(int, http.Header) bool { return false }
	return httplimit.First(
		httplimit.Signature{Status: []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}, XML: map[string]string{"Error.Code": codes}},
		selective{bodyless, never},
	)
}

// TencentDetector returns a Detector of the rejections of Tencent Cloud's API 3.0: HTTP 200 and JSON whose
// Response.Error.Code is RequestLimitExceeded or a subcode of it, such as RequestLimitExceeded.UinLimitExceeded. Until is
// a second away, because the limits are per second. (https://cloud.tencent.com/document/api/213/30435)
func TencentDetector() httplimit.Detector {
	return httplimit.Signature{Status: []int{http.StatusOK}, Wait: time.Second,
		JSON: map[string]string{"Response.Error.Code": "RequestLimitExceeded|RequestLimitExceeded.*"}}
}
