module gantry.dev/interop/prometheus

go 1.26

require github.com/prometheus/prometheus v0.316.0

tool (
	github.com/prometheus/prometheus/cmd/prometheus
	github.com/prometheus/prometheus/cmd/promtool
)
