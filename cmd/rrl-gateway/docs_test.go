// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/http/gateway"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestDocs checks that docs/gateway.md and --help have all flags, and the page the fields as they are in the code.
func TestDocs(t *testing.T) {
	redistest.NoServer(t)
	data := redistest.Must(os.ReadFile("../../docs/gateway.md"))(t)
	page := string(data)
	var help bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"rrl-gateway", "--help"}, &help, &help))
	_, table, _ := strings.Cut(page, "## Flags")
	table, _, _ = strings.Cut(table, "\n## ")
	flags := serveFlags()
	for _, f := range flags {
		require.Contains(t, table, "`--"+f.Names()[0]+"`")
		require.Contains(t, help.String(), "--"+f.Names()[0])
	}
	require.Equal(t, len(flags), strings.Count(table, "`--"), "the page has no other flags")
	for _, field := range []string{"Proxy-Status: " + gateway.ProxyName + "; error=", gateway.TokenHeader, gateway.CAKeyFile, "rrl_gateway_events_total"} {
		require.Contains(t, page, field)
	}
}
