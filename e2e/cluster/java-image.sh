#!/usr/bin/env bash
# Builds the image of the Java clients and loads it into the worker nodes of a cluster that runs; does nothing where
# both are as they should be. Prints the image's name. Its tag is the RocketMQ version of tests/interop/java/pom.xml.
source "$(dirname "$0")/lib.sh"

"$CLUSTER_DIR/base-image.sh"
BASE=debian:$DEBIAN_SUITE-slim
SOURCES=$ROOT_DIR/tests/interop/java
VERSION=$(sed -n 's/.*<rocketmq.version>\(.*\)<.*/\1/p' "$SOURCES/pom.xml")
[[ -n $VERSION ]] || die "$SOURCES/pom.xml names no rocketmq.version"
IMAGE=$JAVA_IMAGE_NAME:$VERSION
LABEL=dev.gantry.inputs

CONTEXT=$(mktemp -d "$CACHE_DIR/java-image.XXXXXX")
trap 'rm -rf "$CONTEXT"' EXIT
mkdir "$CONTEXT/ca"
cp "$CLUSTER_DIR/../images/java/Dockerfile" "$SOURCES/pom.xml" "$CONTEXT/"
cp -r "$SOURCES/src" "$CONTEXT/src"
# Where the host adds authorities to Debian's, Maven needs them to reach its repository.
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
