.DEFAULT_GOAL := help
.PHONY: help test lint fuzz cover demo tidy

# The lanes of `make test`: checks unit redis valkey. All of them by default.
LANES ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every test on miniredis, redis-server and valkey-server; LANES="unit redis" for some
	@tools/test-lanes.sh $(LANES)

lint: ## gofmt, go vet, staticcheck
	@tools/test-lanes.sh checks

fuzz: ## every fuzz target for FUZZTIME (60s) each
	@tools/fuzz.sh

cover: ## what the tests on miniredis cover, function by function
	@tools/test-lanes.sh unit
	@go tool cover -func=coverage/unit.out

demo: ## the command-line demo: a limited HTTP service on an embedded Redis
	@go run ./cmd/rrl demo

tidy: ## go mod tidy in every module, and gofmt
	@find . -name go.mod -execdir env GOWORK=off go mod tidy \;
	@gofmt -w .
