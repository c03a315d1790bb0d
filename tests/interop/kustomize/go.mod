module gantry.dev/interop/kustomize

go 1.26

require sigs.k8s.io/kustomize/kustomize/v5 v5.7.1

tool sigs.k8s.io/kustomize/kustomize/v5
