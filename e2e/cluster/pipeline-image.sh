#!/usr/bin/env bash
# Builds the image of the pipeline (Spark, Java, Gantry) and loads it into the worker nodes of a cluster that runs.
# Apart from image.sh, since it is three times as large and only jobs need it.
source "$(dirname "$0")/lib.sh"

SIZE_MB_MAX=1600

"$CLUSTER_DIR/docker-up.sh"
"$CLUSTER_DIR/base-image.sh"
before=$(docker image inspect -f '{{.Id}}' "$PIPELINE_IMAGE" 2>/dev/null || true)
step "build $PIPELINE_IMAGE" env DOCKER_BUILDKIT=0 docker build -q --network host --target pipeline --build-arg BASE_IMAGE="debian:$DEBIAN_SUITE-slim" -t "$PIPELINE_IMAGE" "$ROOT_DIR"
after=$(docker image inspect -f '{{.Id}}' "$PIPELINE_IMAGE")
[[ -z $before || $before == "$after" ]] || docker rmi "$before" >/dev/null 2>&1 || true
size_mb=$(($(docker image inspect -f '{{.Size}}' "$PIPELINE_IMAGE") / 1000000))
say "  $PIPELINE_IMAGE has $size_mb MB"
((size_mb <= SIZE_MB_MAX)) || die "the image must not be larger than $SIZE_MB_MAX MB"

# As it runs on a cluster: another user than root, and nothing writable but a scratch volume.
step "try $PIPELINE_IMAGE" docker run --rm --read-only --tmpfs /tmp:mode=1777 --cap-drop ALL --security-opt no-new-privileges "$PIPELINE_IMAGE"

if command -v kind >/dev/null && kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    workers=$(kind get nodes --name "$CLUSTER_NAME" | grep -- '-worker' | paste -sd,)
    step "load $PIPELINE_IMAGE" kind load docker-image "$PIPELINE_IMAGE" --name "$CLUSTER_NAME" --nodes "$workers"
fi
