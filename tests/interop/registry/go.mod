module gantry.dev/interop/registry

go 1.26

require github.com/distribution/distribution/v3 v3.1.2

tool github.com/distribution/distribution/v3/cmd/registry
