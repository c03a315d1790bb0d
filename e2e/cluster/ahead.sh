#!/usr/bin/env bash
# Prints the names of the steps that are still ahead, a line each: those of up.sh, and of each image that is named.
#   ahead.sh [IMAGE...]
# An estimate: a step that is not needed in the end is not made, and one that is missing here is made all the same.
source "$(dirname "$0")/lib.sh"

# built NAME VERSION: whether binaries.sh has it.
built() { [[ -f $BIN_DIR/.$1-$2 && -x $BIN_DIR/$1 ]]; }

built kind "$KIND_VERSION" || echo "build kind $KIND_VERSION"
built helm "$HELM_VERSION" || echo "build helm $HELM_VERSION"
if ! have_image "$NODE_IMAGE"; then
    have_image "debian:$DEBIAN_SUITE-slim" || echo "make debian:$DEBIAN_SUITE-slim"
    [[ -f $CACHE_DIR/kubernetes-module/ready-$KUBERNETES_VERSION ]] || echo "resolve k8s.io/kubernetes $KUBERNETES_VERSION"
    for binary in $KUBERNETES_BINARIES; do
        built "$binary" "$KUBERNETES_VERSION" || echo "build $binary $KUBERNETES_VERSION"
    done
    built etcd "$ETCD_VERSION" || echo "build etcd $ETCD_VERSION"
    built coredns "$COREDNS_VERSION" || echo "build coredns $COREDNS_VERSION"
    built local-path-provisioner "$LOCAL_PATH_PROVISIONER_VERSION" || echo "build local-path-provisioner $LOCAL_PATH_PROVISIONER_VERSION"
    built pause 1 || echo "build pause 1"
    printf '%s\n' "node base image" "component images" "node image $NODE_IMAGE"
fi
fresh=
if ! command -v kind >/dev/null || ! kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    fresh=1
    echo "create cluster"
fi
printf '%s\n' "guard against stray traffic" "pod network" "nodes ready" "system pods ready" "storage ready"
for image in "$@"; do
    case $image in
        "$IMAGE" | "$PIPELINE_IMAGE" | "$LAB_IMAGE") printf '%s\n' "build $image" "load $image" ;;
        *)
            if ! have_image "$image"; then printf '%s\n' "build $image" "load $image"; elif [[ -n $fresh ]]; then echo "load $image"; fi
            ;;
    esac
done
