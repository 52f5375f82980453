// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"testing"

	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/stretchr/testify/require"
)

// TestBodiesAreParsedOnce: several detectors look at one answer, and its body may be long.
func TestBodiesAreParsedOnce(t *testing.T) {
	r := &httplimit.Response{Body: []byte(`{"errcode":90018}`), Complete: true}
	o := answer{r}.json()
	require.Equal(t, "90018", o.Text("errcode"))
	require.Same(t, o, answer{r}.json())
}
