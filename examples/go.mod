module github.com/goredisson/ratelimiter/examples

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/goredisson/ratelimiter v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/goredisson/ratelimiter/prometheusratelimiter v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.23.2
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/goredisson/ratelimiter => ../

replace github.com/goredisson/ratelimiter/prometheusratelimiter => ../prometheusratelimiter
