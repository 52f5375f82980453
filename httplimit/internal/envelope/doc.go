// SPDX-License-Identifier: Apache-2.0

// Package envelope reads what detectors of throttled requests have in common: the frame in which a platform's
// gateway rejects a call, the JSON object in it, and the instants that its header names.
package envelope
