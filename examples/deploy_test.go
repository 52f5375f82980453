// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A deployment is what a file of examples/deploy starts: the arguments of Redis and of a server, and the server's environment.
type deployment struct {
	redis, server []string
	env           map[string]string
}

// ofCompose reads compose.yaml, with the default of each variable.
func ofCompose(t *testing.T) deployment {
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
		}
	}
	text := regexp.MustCompile(`\$\{\w+:-(\w+)\}`).ReplaceAllString(deployFile(t, "compose.yaml"), "$1")
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	one, two := file.Services["server-1"], file.Services["server-2"]
	require.Equal(t, one, two)
	return deployment{redis: file.Services["redis"].Command, server: one.Command, env: one.Environment}
}

// ofKubernetes reads kubernetes.yaml, with the values of its secret.
func ofKubernetes(t *testing.T) (d deployment) {
	secret := map[string]string{}
	for part := range strings.SplitSeq(deployFile(t, "kubernetes.yaml"), "\n---\n") {
		var object struct {
			StringData map[string]string `yaml:"stringData"`
			Spec       struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name string
							Args []string
							Env  []struct {
								Name, Value string
								ValueFrom   struct {
									SecretKeyRef struct{ Key string } `yaml:"secretKeyRef"`
								} `yaml:"valueFrom"`
							}
						}
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(part), &object))
		for key, value := range object.StringData {
			secret[key] = value
		}
		for _, c := range object.Spec.Template.Spec.Containers {
			env := map[string]string{}
			for _, e := range c.Env {
				env[e.Name] = e.Value
				if key := e.ValueFrom.SecretKeyRef.Key; key != "" {
					env[e.Name] = secret[key]
				}
			}
			if c.Name == "server" {
				d.server, d.env = c.Args, env
				continue
			}
			for _, arg := range c.Args {
				d.redis = append(d.redis, strings.ReplaceAll(arg, "$(REDIS_PASSWORD)", env["REDIS_PASSWORD"]))
			}
		}
	}
	return d
}

func deployFile(t *testing.T, name string) string {
	text := redistest.Must(os.ReadFile("deploy/" + name))(t)
	return string(text)
}

// TestDeploy runs what each file starts, as processes of this machine: Redis and two servers with the arguments and the
// environment that the file gives them, but for addresses. The servers share one limit.
func TestDeploy(t *testing.T) {
	redistest.NeedReal(t)
	program := copied(t, "server")
	for name, read := range map[string]func(*testing.T) deployment{"compose": ofCompose, "kubernetes": ofKubernetes} {
		t.Run(name, func(t *testing.T) {
			d := read(t)
			require.Equal(t, "redis-server", d.redis[0])
			redis := redistest.Start(t, d.redis[1:]...)
			env := []string{"REDIS_PASSWORD=" + d.env["REDIS_PASSWORD"]}
			require.Regexp(t, `^redis://[a-z-]+:6379/0$`, d.env["REDIS_URL"])
			env = append(env, "REDIS_URL=redis://"+redis.Addr()+"/0")
			require.Equal(t, "-serve", d.server[0])
			require.Equal(t, []string{"-addr", "0.0.0.0:8080"}, d.server[3:])
			args := append(d.server[1:3:3], "-addr", "127.0.0.1:0", "-interval", "1h")
			one, two := serve(t, program, env, args...), serve(t, program, env, args...)
			for i := range 5 {
				require.Equal(t, http.StatusOK, []*process{one, two}[i%2].get())
			}
			require.Equal(t, http.StatusTooManyRequests, one.get())
			require.Equal(t, http.StatusTooManyRequests, two.get())
			for _, path := range []string{"/health", "/ready", "/metrics"} { // the probes, and what Prometheus reads
				require.Equal(t, http.StatusOK, one.status(strings.TrimSuffix(one.url, "/orders/1")+path), path)
			}
			fresh := serve(t, program, env, args...)
			redis.Kill()
			at := func(p *process, path string) int { return p.status(strings.TrimSuffix(p.url, "/orders/1") + path) }
			require.Equal(t, http.StatusOK, at(fresh, "/health"), "it lives")
			require.Equal(t, http.StatusServiceUnavailable, at(fresh, "/ready"), "it has not reached Redis yet")
			require.Equal(t, http.StatusOK, at(one, "/ready"), "the outage policy decides")
		})
	}
}
