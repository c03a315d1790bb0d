module gantry.dev/interop/olm

go 1.26

require github.com/operator-framework/api v0.33.0
