#!/usr/bin/env bash
# Builds Gantry's image and loads it into the worker nodes of a cluster that runs. Docker's layer cache and kind's
# comparison of image ids make this quick where nothing changed.
#   image.sh [NAME:TAG DIRECTORY]     the image of another checkout, under another name
source "$(dirname "$0")/lib.sh"

IMAGE=${1:-$IMAGE}
SOURCE_DIR=${2:-$ROOT_DIR}

SIZE_MB_MAX=350

"$CLUSTER_DIR/docker-up.sh"
"$CLUSTER_DIR/base-image.sh"
before=$(docker image inspect -f '{{.Id}}' "$IMAGE" 2>/dev/null || true)
step "build $IMAGE" env DOCKER_BUILDKIT=0 docker build -q --network host --target gantry --build-arg BASE_IMAGE="debian:$DEBIAN_SUITE-slim" -t "$IMAGE" "$SOURCE_DIR"
after=$(docker image inspect -f '{{.Id}}' "$IMAGE")
[[ -z $before || $before == "$after" ]] || docker rmi "$before" >/dev/null 2>&1 || true
size_mb=$(($(docker image inspect -f '{{.Size}}' "$IMAGE") / 1000000))
say "  $IMAGE has $size_mb MB"
((size_mb <= SIZE_MB_MAX)) || die "the image must not be larger than $SIZE_MB_MAX MB"

if command -v kind >/dev/null && kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    workers=$(kind get nodes --name "$CLUSTER_NAME" | grep -- '-worker' | paste -sd,)
    step "load $IMAGE" kind load docker-image "$IMAGE" --name "$CLUSTER_NAME" --nodes "$workers"
fi
