#!/usr/bin/env bash
# Builds an image that only tests use and loads it into the worker nodes of a cluster that runs; does nothing where
# both are as they should be. Prints the image's name.
#   test-image.sh NAME:TAG DOCKERFILE FILE_OR_DIRECTORY...     the context: all of these side by side, and ca/
# BASE: the image that it is built on; Debian's where it is not set.
source "$(dirname "$0")/lib.sh"

IMAGE=$1 DOCKERFILE=$2
shift 2
LABEL=dev.gantry.inputs
"$CLUSTER_DIR/base-image.sh"
BASE=${BASE:-debian:$DEBIAN_SUITE-slim}

CONTEXT=$(mktemp -d "$CACHE_DIR/test-image.XXXXXX")
trap 'rm -rf "$CONTEXT"' EXIT
mkdir "$CONTEXT/ca"
cp "$DOCKERFILE" "$CONTEXT/Dockerfile"
cp -r "$@" "$CONTEXT/"
find "$CONTEXT" -name __pycache__ -type d -prune -exec rm -rf {} +
# Where the host adds authorities to Debian's, the build needs them to reach its repositories.
find /usr/local/share/ca-certificates -name '*.crt' -exec cp -L {} "$CONTEXT/ca/" \; 2>/dev/null || true

inputs=$({ docker image inspect -f '{{.Id}}' "$BASE"; cd "$CONTEXT" && find . -type f -exec sha256sum {} + | sort; } | sha256sum | cut -d' ' -f1)
built() { [[ $(docker image inspect -f "{{index .Config.Labels \"$LABEL\"}}" "$IMAGE" 2>/dev/null) == "$inputs" ]]; }
built || step "build $IMAGE" docker build -q --network host --build-arg BASE_IMAGE="$BASE" --label "$LABEL=$inputs" -t "$IMAGE" "$CONTEXT"

# A node's containerd knows an image by its name and by its id; both must stand for the same content.
id=$(docker image inspect -f '{{.Id}}' "$IMAGE")
loaded() { [[ $(docker exec "$1" ctr -n k8s.io images list | awk -v id="$id" -v name="docker.io/$IMAGE" '$1 == id || $1 == name {print $3}' | uniq -c) == *" 2 "* ]]; }
missing=
for node in $(kind get nodes --name "$CLUSTER_NAME" 2>/dev/null); do
    [[ $node != *-worker* ]] || loaded "$node" || missing+=,$node
done
[[ -z $missing ]] || step "load $IMAGE" kind load docker-image "$IMAGE" --name "$CLUSTER_NAME" --nodes "${missing#,}"
printf '%s\n' "$IMAGE"
