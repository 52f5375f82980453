// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// advice says what to check after an error of Redis or of the connection, by a part of its text.
var advice = []struct{ part, what string }{
	{"NOAUTH", "it wants a password: set Password, and Username for a user of an ACL, in the redis client's options"},
	{"unauthenticated multibulk length", "it wants a password: set Password, and Username for a user of an ACL, in the redis client's options"},
	{"WRONGPASS", "check Username and Password in the redis client's options"},
	{"invalid username-password", "check Username and Password in the redis client's options"},
	{"NOPERM", noPermission},
	{"ACL failure in script", noPermission},
	{"The user executing the script can't", noPermission},
	{"first record does not look like a TLS handshake", "it does not speak TLS there; leave TLSConfig out of the redis client's options, or use redis:// in place of rediss://"},
	{"x509: certificate is valid for", otherName},
	{"x509: certificate is not valid for any names", otherName},
	{"because it doesn't contain any IP SANs", otherName},
	{"x509:", "its certificate is not trusted; RootCAs in TLSConfig has those who signed it"},
	{"tls: handshake failure", "it may want a certificate of the client: Certificates in TLSConfig"},
	{"certificate required", "it wants a certificate of the client: Certificates in TLSConfig"},
	{"connection refused", "nothing listens there; check host and port"},
	{"no such host", "the name is not known; check it"},
	{"all sentinels specified in configuration are unreachable", "check the addresses of the sentinels and MasterName"},
	{"i/o timeout", "it did not reply in time; check the network, and that TLSConfig, or rediss://, is used if it speaks TLS, and only then"},
	{context.DeadlineExceeded.Error(), "it did not reply in time; check the network, and that TLSConfig, or rediss://, is used if it speaks TLS, and only then"},
	{"no reply from Redis", "it did not reply in time; check the network, and that TLSConfig, or rediss://, is used if it speaks TLS, and only then"},
	{"EOF", "it closed the connection; check that TLSConfig, or rediss://, is used if it speaks TLS, with a certificate if it wants one of the client"},
	{"connection reset by peer", "it closed the connection; check that TLSConfig, or rediss://, is used if it speaks TLS, with a certificate if it wants one of the client"},
	{"LOADING", "it loads its data; try again in a moment"},
	{"CLUSTERDOWN", "the cluster has no master for some slots; redis-cli --cluster check HOST:PORT tells which"},
	{"OOM ", "its memory is full; raise maxmemory, or delete what is not needed"},
	{"READONLY", "it is a replica; connect to the master, through Sentinel, or with a cluster client"},
	{"MISCONF", "it cannot save its data; see its log and its disk"},
	{"NOREPLICAS", "it has fewer replicas than min-replicas-to-write asks for; bring them back"},
	{"BUSY ", "a script has been running for too long; SCRIPT KILL ends it if it has not written"},
	{"too many open files", "raise the limit of open files of this process, or find what leaves them open"},
	{"connection pool timeout", "raise PoolSize, or give slow commands a redis client of their own"},
	{redis.ErrClosed.Error(), "close the limiters' Client before the redis client"},
	{"WRONGTYPE", "another program, or another limiter, uses the name; choose another one"},
	{redis.Nil.Error(), "no script replies so; in a cluster whose cluster-preferred-endpoint-type is unknown-endpoint, go-redis does not learn where the nodes are: set ip or hostname there, or ClusterSlots in the redis client's options"},
	{"command is not allowed from script", "it rejects a command within scripts, as some serverless servers reject TIME: WithClientClock passes the time of this process; docs/production.md has the rules of such servers"},
	{"ERR internal error", "it does not say what it could not do in a script, as a serverless server may; docs/production.md has the rules of such servers"},
	{"DB index is out of range", "it has fewer databases; 0 is the first"},
}

const otherName = "its certificate has another name; ServerName in TLSConfig is the name that it is to have"

const noPermission = "docs/design/protocol.md lists what the ACL of the user has to allow; rrl doctor NAME --app-user USER says what is missing"

// Advise adds advice on what to check to err, an error of Redis or of the connection, if there is any.
func Advise(err error) error {
	text := err.Error()
	for _, a := range advice {
		if strings.Contains(text, a.part) {
			return fmt.Errorf("%w (%s)", err, a.what)
		}
	}
	return err
}
