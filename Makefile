.DEFAULT_GOAL := help
.PHONY: release help quick test test-long test-faults faults-report lint fuzz cover bench api compat-report compat-long compat-newest demo tidy page-screenshots docs vuln dist

# The lanes of `make test`: checks unit oldest compat bench page redis valkey servers. All of these by default; and otlp sdk frameworks,
# which compile for minutes what others have written, and release.
LANES ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## the tests: miniredis, redis-server, valkey-server, real Redisson; LANES="unit redis" for some, LANES="otlp sdk frameworks release" beside others' programs and for a release
	@tools/test-lanes.sh $(LANES)

quick: ## what to run after each change of the limiter: scripts, some orders of calls, the engine, the tour; half a minute once it is compiled
	@go test -short -skip 'List' ./scripts ./internal/dispatch ./internal/link ./internal/outage ./internal/redisson ./internal/engine/...
	@go test -run 'TestEveryOrder$$/OVERALL_.,_1_of_(ask_(lose|java_time|cool|refund)|heal)' ./internal/test/explore
	@go test -short -run 'TestTour|TestRooms|TestFloors|TestAPI' .

test-long: ## before a release: all lanes with every case of what is long and rare, then compat-long
	@RATELIMITER_LONG=1 tools/test-lanes.sh $(LANES)
	@$(MAKE) --no-print-directory compat-long

test-faults: ## kills, freezes, fills and floods Redis, row by row, and prints what was promised and measured; 13 minutes
	@tools/test-faults.sh

faults-report: ## writes the table of docs/reliability.md from such a run
	@RATELIMITER_FAULTS_REPORT=write tools/test-faults.sh

lint: ## gofmt, go vet, staticcheck
	@tools/test-lanes.sh checks

fuzz: ## every fuzz target for FUZZTIME (60s) each
	@tools/fuzz.sh

cover: ## what the tests on miniredis cover, function by function
	@RATELIMITER_COVER=1 tools/test-lanes.sh unit
	@go tool cover -func=coverage/unit.out

bench: ## this library beside Redisson and others, into benchmarks/run.out; BENCH='Row/=callers-512$$/=ours$$' for some rows, ROUNDS (5)
	@benchmarks/prepare.sh
	@cd benchmarks && go test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 0.3s -timeout 0 -rounds $(or $(ROUNDS),5) . | tee run.out

api: ## writes the exported names of each public package into its testdata/api.txt
	@RATELIMITER_API=write go test -count=1 -run '^TestAPI$$' .

compat-report: ## writes the docs/compatibility-matrix.md from a run of all Redisson versions
	@CI=true compat_test/prepare.sh
	@cd compat_test && RATELIMITER_LANE=redis RATELIMITER_COMPAT_REPORT=write go test -count=1 -run Matrix .

compat-long: ## 1,000,000 operations against the jars' scripts, and the long forms of what shares one Redis with Java
	@CI=true compat_test/prepare.sh
	@cd compat_test && RATELIMITER_LANE=redis RATELIMITER_COMPAT_OPS=1000000 RATELIMITER_COMPAT_LONG=1 go test -count=1 -timeout 60m -v -run 'Differential|Soak|Outbound|Shares|CoolDown|Matrix|Beside|Fields' .

compat-newest: ## the matrix with the newest Redisson that Maven has now; fails if that behaves otherwise than the list says
	@CI=true compat_test/prepare.sh --newest
	@cd compat_test && RATELIMITER_LANE=redis go test -count=1 -run Matrix .
	@! cat compat_test/java/target/newest-differs 2>/dev/null

page-screenshots: ## writes the pictures of rrl page into docs/, from a run of the browser
	@tools/install-servers.sh redis-server chromium fonts-wqy-microhei
	@cd page_test && RATELIMITER_LANE=redis RATELIMITER_PAGE_SCREENSHOTS=write go test -count=1 -run Pictures .

demo: ## a limiter at work, on an embedded Redis
	@go run ./examples/demo

docs: ## the tests of the pages: links, code blocks, names and what is generated
	@go test -count=1 ./docs
	@go test -count=1 -run 'Docs|Workflows|Chinese|Explanations' . ./cmd/rrl/... ./cmd/rrl-gateway/... ./examples/compare ./examples/demo ./internal/ops/doctor ./prometheusratelimiter/... ./ratelimiterpage

vuln: ## govulncheck in every module
	@for mod in $$(find . -name go.mod); do echo "== $$mod" && (cd "$$(dirname "$$mod")" && GOWORK=off go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...) || exit 1; done

dist: ## the programs of a release, with checksums, SBOMs and images, at its tag; DIST="--snapshot --skip=publish,sign" to try it
	@go run github.com/goreleaser/goreleaser/v2@v2.14.0 release --clean $(DIST)

release: ## tags VERSION=v1.2.3 in every module that users import or install, once it is proved to install; DRY=1 tags nothing
	@tools/release.sh

tidy: ## go mod tidy in every module, gofmt, and the line of the licence in each file
	@find . -name go.mod -execdir env GOWORK=off go mod tidy \;
	@tools/spdx.sh
	@gofmt -w .
