// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/httplimit/rulefile"
	"github.com/goredisson/ratelimiter/internal/http/muxpattern"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/dinggate/dingtest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var heredoc = regexp.MustCompile(`(?s)<<'RULES'\n(.*?)\nRULES\n`)

// TestGatewayPageAndProfileShareARobot sends messages of one robot by the rules of the gateway's page and by the profile, side by
// side. DingTalk bans the robot at the 21st message in a minute; when the page named a limiter of its own, 40 arrived at once.
func TestGatewayPageAndProfileShareARobot(t *testing.T) {
	for _, page := range []string{"docs/gateway.md", "docs/zh/gateway.md"} {
		t.Run(page, func(t *testing.T) {
			file := heredoc.FindStringSubmatch(pages(t)[page])
			require.NotNil(t, file)
			rules := redistest.Must(rulefile.Parse([]byte(file[1])))(t)
			redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
				gate := dinggate.New(dinggate.Standard())
				var sending sync.WaitGroup
				token := redistest.Key(t)
				begun := time.Now()
				for _, o := range []httplimit.Option{httplimit.WithRules(rules...), httplimit.WithProfile(platform.DingTalkRobot()), httplimit.WithProfile(platform.DingTalk("app"))} {
					client := redistest.Must(ratelimiter.New(redistest.Peer(t, rdb), ratelimiter.WithClientClock()))(t)
					t.Cleanup(func() { _ = client.Close() })
					transport := redistest.Must(httplimit.New(client, o, httplimit.WithBase(dingtest.Direct(gate)), httplimit.WithMaxWait(5*time.Minute)))(t)
					for range 20 {
						sending.Go(func() {
							if err := dingtest.Send(&http.Client{Transport: transport}, dingtest.DingTalk, token); err != nil {
								t.Errorf("a message is lost: %v", err)
							}
						})
					}
				}
				sending.Wait()
				require.GreaterOrEqual(t, time.Since(begun), 122*time.Second, "60 are three windows of 61 s")
				robot := gate.Ledger().Key(dinggate.DimRobot, token)
				require.Equal(t, []int{20, 60}, []int{robot.Worst, int(robot.Admitted)})
				require.Empty(t, gate.Ledger().Penalties)
			})
		})
	}
}

// TestNoPageRepeatsAProfile checks that no rule file of a page has a limit for a host that a profile is for: its name would be
// another one, and both together let twice as much through.
func TestNoPageRepeatsAProfile(t *testing.T) {
	var hosts []string
	for _, p := range []httplimit.Profile{platform.DingTalk("x"), platform.WeCom("x"), platform.Feishu("x"), platform.GitHub("x"), platform.OpenAI("x"), platform.Anthropic("x"), platform.DashScope("x")} {
		for _, r := range p.Rules {
			hosts = append(hosts, r.Match.Hosts...)
		}
	}
	files := 0
	for page, text := range pages(t) {
		for _, m := range slices.Concat(heredoc.FindAllStringSubmatch(text, -1), regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)) {
			if !regexp.MustCompile(`(?m)^(rules|profiles):`).MatchString(m[1]) {
				continue
			}
			files++
			rules := redistest.Must(rulefile.Parse([]byte(m[1])))(t)
			for _, r := range rules {
				if r.OnePlatform { // a profile's
					continue
				}
				for _, host := range muxpattern.Hosts(r.Match.Patterns, r.Match.Hosts) {
					require.NotContains(t, hosts, host, "%s: rule %q; name the profile", page, r.Name)
				}
			}
		}
	}
	require.GreaterOrEqual(t, files, 6)
}

// TestRobotProgramsLoseNothing runs what the pages show of a robot's program as it stands there, in virtual time: of a burst of 25
// messages none is lost, and none is sent while DingTalk would ban the robot.
func TestRobotProgramsLoseNothing(t *testing.T) {
	redistest.NoServer(t)
	redistest.NoRace(t, "it compiles")
	var calls, blocks strings.Builder
	n := 0
	for _, page := range []string{"README.md", "README.zh-CN.md", "docs/http-outbound.md", "docs/zh/http-outbound.md"} {
		found := 0
		for _, m := range goBlock.FindAllStringSubmatch(pages(t)[page], -1) {
			if !strings.HasPrefix(m[1], "transport, err := httplimit.New(client,\n\thttplimit.WithProfile(platform.DingTalk") {
				continue
			}
			found++
			n++
			fmt.Fprintf(&blocks, "func block%d() error {\n%s\nreturn nil\n}\n", n, m[1])
			fmt.Fprintf(&calls, "\tt.Run(%q, func(t *testing.T) { arrive(t, block%d) })\n", page, n)
		}
		require.Equal(t, 1, found, page)
	}
	dir := redistest.Must(os.MkdirTemp(".", "_docs"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	src := strings.NewReplacer("// CALLS", calls.String(), "// BLOCKS", blocks.String()).Replace(robotProgram)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "robot_test.go"), []byte(src), 0o600))
	cmd := exec.Command("go", "test", "-count=1", "./"+dir)
	cmd.Env = append(os.Environ(), "RATELIMITER_LANE=") // on miniredis, whose time is that of the bubble
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const robotProgram = `package robot

import (
	"log"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/goredisson/ratelimiter"
	"github.com/goredisson/ratelimiter/httplimit"
	"github.com/goredisson/ratelimiter/httplimit/platform"
	"github.com/goredisson/ratelimiter/internal/test/dinggate"
	"github.com/goredisson/ratelimiter/internal/test/dinggate/dingtest"
	"github.com/goredisson/ratelimiter/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	_      = []any{log.Fatal, time.Second}
	sdk    struct{ HTTPClient *http.Client }
	client *ratelimiter.Client
)

func TestRobot(t *testing.T) {
// CALLS
}

func arrive(t *testing.T, block func() error) {
	redistest.Run(t, func(t *testing.T, rdb *redis.Client) {
		client = redistest.Must(ratelimiter.New(rdb))(t)
		defer client.Close()
		gate := dinggate.New(dinggate.Standard())
		http.DefaultTransport = dingtest.Direct(gate)
		require.NoError(t, block())
		var sending sync.WaitGroup
		for range 25 {
			sending.Go(func() {
				if err := dingtest.Send(sdk.HTTPClient, dingtest.DingTalk, "a-robot"); err != nil {
					t.Errorf("a message is lost: %v", err)
				}
			})
		}
		sending.Wait()
		ledger := gate.Ledger()
		require.EqualValues(t, 25, ledger.Key(dinggate.DimRobot, "a-robot").Admitted)
		require.Empty(t, ledger.Penalties)
	})
}

// BLOCKS
`
