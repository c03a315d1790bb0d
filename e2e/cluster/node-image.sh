#!/usr/bin/env bash
# Provides the kind node image: present, pulled, or built from Debian packages and the binaries of binaries.sh.
# The steps are those of kind's own base Dockerfile and node-image build, without a registry.
source "$(dirname "$0")/lib.sh"

have_image "$NODE_IMAGE" && exit 0
if timeout 60 docker pull -q "$KINDEST_NODE_IMAGE" >/dev/null 2>&1; then
    docker tag "$KINDEST_NODE_IMAGE" "$NODE_IMAGE"
    exit 0
fi

"$CLUSTER_DIR/base-image.sh"
"$CLUSTER_DIR/binaries.sh" node
KIND_SOURCE=$(cd "$CACHE_DIR" && GOPATH=${GOPATH:-$CACHE_DIR/go} go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
BASE=debian:$DEBIAN_SUITE-slim
NODE_BASE=gantry-test/node-base:$KIND_VERSION
BUILD_DIR=$CACHE_DIR/build
BUILDER=gantry-node-build-$$

node_base() {
    local dir=$BUILD_DIR/node-base
    rm -rf "$dir" && mkdir -p "$dir"
    cp -r "$KIND_SOURCE/images/base/files" "$dir/files"
    chmod -R u+w "$dir"
    find "$dir/files" -type d -exec chmod 0755 {} + -o -type f -exec chmod 0644 {} +
    chmod 0755 "$dir"/files/usr/local/bin/* "$dir"/files/kind/bin/*
    # No CAP_SYS_RESOURCE, no fuse snapshotter, see kind's rootless notes for the same settings.
    sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' -e '/^\[proxy_plugins/,/^$/d' "$dir/files/etc/containerd/config.toml"
    sed -i '/^OOMScoreAdjust/d' "$dir"/files/etc/systemd/system/*.service
    rm "$dir/files/etc/systemd/system/containerd-fuse-overlayfs.service"
    cp "$CLUSTER_DIR/node-base.Dockerfile" "$dir/Dockerfile"
    docker build --network host --build-arg BASE_IMAGE="$BASE" -t "$NODE_BASE" "$dir"
}

# One static binary in an empty image, under the name kubeadm asks for.
component_image() {
    local tag=$1 binary=$2 dir=$BUILD_DIR/component
    rm -rf "$dir" && mkdir -p "$dir"
    cp "$BIN_DIR/$binary" "$dir/"
    printf 'FROM scratch\nCOPY %s /usr/local/bin/%s\nENV PATH=/usr/local/bin\nENTRYPOINT ["/usr/local/bin/%s"]\n' "$binary" "$binary" "$binary" >"$dir/Dockerfile"
    docker build -q -t "$tag" "$dir"
}

component_images() {
    local name pause
    for name in kube-apiserver kube-controller-manager kube-scheduler; do
        component_image "registry.k8s.io/$name:$KUBERNETES_VERSION" "$name"
    done
    component_image "registry.k8s.io/etcd:$ETCD_TAG" etcd
    component_image "registry.k8s.io/coredns/coredns:$COREDNS_VERSION" coredns
    for pause in $PAUSE_TAGS; do component_image "registry.k8s.io/pause:$pause" pause; done
    component_image "docker.io/kindest/local-path-provisioner:gantry" local-path-provisioner
    docker tag "$BASE" docker.io/kindest/local-path-helper:gantry
    # kube-proxy programs the packet filter with the system's own tools.
    local dir=$BUILD_DIR/kube-proxy
    rm -rf "$dir" && mkdir -p "$dir"
    cp "$BIN_DIR/kube-proxy" "$dir/"
    printf 'FROM %s\nRUN apt-get update -qq && apt-get install -y -qq --no-install-recommends iptables nftables conntrack kmod && rm -rf /var/lib/apt/lists/*\nCOPY kube-proxy /usr/local/bin/kube-proxy\n' "$BASE" >"$dir/Dockerfile"
    docker build -q --network host -t "registry.k8s.io/kube-proxy:$KUBERNETES_VERSION" "$dir"
}

component_tags() {
    local name pause
    for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do printf 'registry.k8s.io/%s:%s\n' "$name" "$KUBERNETES_VERSION"; done
    printf 'registry.k8s.io/etcd:%s\nregistry.k8s.io/coredns/coredns:%s\n' "$ETCD_TAG" "$COREDNS_VERSION"
    for pause in $PAUSE_TAGS; do printf 'registry.k8s.io/pause:%s\n' "$pause"; done
    printf 'docker.io/kindest/local-path-provisioner:gantry\ndocker.io/kindest/local-path-helper:gantry\n'
}

storage_manifest() {
    sed -n '/^const defaultStorageManifest = `/,/^`$/p' "$KIND_SOURCE/pkg/build/nodeimage/const_storage.go" |
        sed -e '1d' -e '$d' -e 's/` + storageProvisionerImage + `/docker.io\/kindest\/local-path-provisioner:gantry/' \
            -e 's/` + storageHelperImage + `/docker.io\/kindest\/local-path-helper:gantry/'
}

node_image() {
    local binary
    # shellcheck disable=SC2064
    trap "docker rm -f '$BUILDER' >/dev/null 2>&1 || true" EXIT
    docker run -d --name "$BUILDER" --privileged --entrypoint sleep "$NODE_BASE" infinity
    for binary in kubeadm kubelet kubectl; do docker cp "$BIN_DIR/$binary" "$BUILDER:/usr/bin/$binary"; done
    docker exec "$BUILDER" sh -c "mkdir -p /kind/manifests && printf %s '$KUBERNETES_VERSION' >/kind/version"
    storage_manifest | docker exec -i "$BUILDER" sh -c 'cat >/kind/manifests/default-storage.yaml'
    printf '' | docker exec -i "$BUILDER" sh -c 'cat >/kind/manifests/default-cni.yaml'
    docker exec -d "$BUILDER" containerd
    docker exec "$BUILDER" sh -c 'for i in $(seq 60); do ctr version >/dev/null 2>&1 && exit 0; sleep 0.5; done; exit 1'
    # shellcheck disable=SC2046
    docker save $(component_tags) | docker exec -i "$BUILDER" ctr -n k8s.io images import --no-unpack -
    docker exec "$BUILDER" pkill containerd
    docker exec "$BUILDER" sh -c 'for i in $(seq 40); do pgrep -x containerd >/dev/null || exit 0; sleep 0.25; done; exit 1'
    docker commit --change 'ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]' "$BUILDER" "$NODE_IMAGE"
}

step "node base image" node_base
step "component images" component_images
step "node image $NODE_IMAGE" node_image
