#!/usr/bin/env bash
# Builds the Kubernetes binaries, kind, helm, kubectl, etcd, CoreDNS and the local-path provisioner from Go
# modules. Only needed where no container registry is in reach; every binary is built once and kept.
#   binaries.sh [all|node|tools|metrics]
#   binaries.sh api [VERSION]     what `gantry local up --api real` runs; another version than the cluster's has a
#                                 directory of its own. Prints the directory.
source "$(dirname "$0")/lib.sh"

wanted=${1:-all}
module_dir=$CACHE_DIR/kubernetes-module
if [[ $wanted == api && ${2:-$KUBERNETES_VERSION} != "$KUBERNETES_VERSION" ]]; then
    [[ $2 =~ ^v1\.[0-9]+\.[0-9]+$ ]] || die "$2 is no version of Kubernetes; write one as v1.37.2"
    KUBERNETES_VERSION=$2
    BIN_DIR=$CACHE_DIR/api-$2
    module_dir=$CACHE_DIR/kubernetes-module-$2
    mkdir -p "$BIN_DIR"
fi

command -v go >/dev/null || die "Go 1.24 or newer is needed to build the node image from modules; install it, or make $KINDEST_NODE_IMAGE pullable"
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GOPATH=${GOPATH:-$CACHE_DIR/go}

KUBERNETES_MINOR=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")
VERSION_FLAGS=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    VERSION_FLAGS+=" -X $package.gitVersion=$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=$KUBERNETES_MINOR"
    VERSION_FLAGS+=" -X $package.gitTreeState=clean -X $package.buildDate=2026-01-01T00:00:00Z"
done

# A module of our own that requires k8s.io/kubernetes and replaces its staging modules (listed there as v0.0.0)
# by their published versions.
kubernetes_module() {
    local dir=$module_dir staging source
    [[ -f $dir/ready-$KUBERNETES_VERSION ]] && return
    rm -rf "$dir" && mkdir -p "$dir" && cd "$dir"
    go mod init cluster.test/kubernetes
    source=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES_VERSION" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
    go mod edit -require "k8s.io/kubernetes@$KUBERNETES_VERSION"
    for staging in $(sed -n 's/^[[:space:]]*\(k8s\.io\/[a-z-]*\) v0\.0\.0\( .*\)*$/\1/p' "$source/go.mod" | sort -u); do
        go mod edit -replace "$staging=$staging@${KUBERNETES_VERSION/v1./v0.}"
    done
    {
        printf 'package tools\n\nimport (\n'
        printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' kubeadm kubectl kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy
        printf ')\n'
    } >tools.go
    go mod tidy
    touch "ready-$KUBERNETES_VERSION"
}

kubernetes_binary() {
    cd "$module_dir"
    go build -trimpath -ldflags "-s -w $VERSION_FLAGS" -o "$BIN_DIR/$1.new" "k8s.io/kubernetes/cmd/$1"
    mv "$BIN_DIR/$1.new" "$BIN_DIR/$1"
}

installed_binary() {
    GOBIN=$CACHE_DIR/gobin go install -trimpath -ldflags "-s -w $3" "$2"
    mv "$CACHE_DIR/gobin/$1" "$BIN_DIR/$1"
}

# etcd's server has replace directives, so it cannot be installed by name.
etcd_binary() {
    local dir=$CACHE_DIR/etcd-module
    rm -rf "$dir" && mkdir -p "$dir" && cd "$dir"
    go mod init cluster.test/etcd
    printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >main.go
    go mod edit -require "go.etcd.io/etcd/server/v3@$ETCD_VERSION"
    go mod tidy
    go build -trimpath -ldflags "-s -w" -o "$BIN_DIR/etcd" .
}

pause_binary() {
    cat >"$CACHE_DIR/pause.c" <<'C'
/* Holds a pod's namespaces: waits for a signal to stop, and reaps what is reparented to it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int signo) { (void)signo; _exit(0); }
static void reap(int signo) { (void)signo; while (waitpid(-1, NULL, WNOHANG) > 0) {} }
int main(void) {
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
C
    command -v gcc >/dev/null || apt-get install -y -qq gcc libc6-dev
    gcc -Os -static -o "$BIN_DIR/pause" "$CACHE_DIR/pause.c"
}

# once NAME VERSION COMMAND...: skips what is there in this version.
once() {
    local name=$1 version=$2 stamp=$BIN_DIR/.$1-$2
    shift 2
    [[ -f $stamp && -x $BIN_DIR/$name ]] && return
    step "build $name $version" "$@"
    touch "$stamp"
}

kubernetes_binaries() {
    [[ -f $module_dir/ready-$KUBERNETES_VERSION ]] || step "resolve k8s.io/kubernetes $KUBERNETES_VERSION" kubernetes_module
    local binary
    for binary in "$@"; do
        once "$binary" "$KUBERNETES_VERSION" kubernetes_binary "$binary"
    done
    once etcd "$ETCD_VERSION" etcd_binary
}

if [[ $wanted == api ]]; then
    kubernetes_binaries kube-apiserver kube-controller-manager
    printf '%s\n' "$BIN_DIR"
fi
if [[ $wanted == all || $wanted == node ]]; then
    # shellcheck disable=SC2086
    kubernetes_binaries $KUBERNETES_BINARIES
    once coredns "$COREDNS_VERSION" installed_binary coredns "github.com/coredns/coredns@$COREDNS_VERSION" ""
    once local-path-provisioner "$LOCAL_PATH_PROVISIONER_VERSION" \
        installed_binary local-path-provisioner "github.com/rancher/local-path-provisioner@$LOCAL_PATH_PROVISIONER_VERSION" ""
    once pause 1 pause_binary
fi
if [[ $wanted == metrics ]]; then
    once metrics-server "$METRICS_SERVER_VERSION" installed_binary metrics-server "sigs.k8s.io/metrics-server/cmd/metrics-server@$METRICS_SERVER_VERSION" ""
fi
if [[ $wanted == all || $wanted == tools ]]; then
    once kind "$KIND_VERSION" installed_binary kind "sigs.k8s.io/kind@$KIND_VERSION" ""
    once helm "$HELM_VERSION" installed_binary helm "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" \
        "-X helm.sh/helm/v3/internal/version.version=$HELM_VERSION -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$KUBERNETES_MINOR"
fi
