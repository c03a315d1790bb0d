#!/usr/bin/env bash
# The image of the Java clients; its tag is the RocketMQ version of tests/interop/java/pom.xml. Prints its name.
source "$(dirname "$0")/lib.sh"

SOURCES=$ROOT_DIR/tests/interop/java
VERSION=$(sed -n 's/.*<rocketmq.version>\(.*\)<.*/\1/p' "$SOURCES/pom.xml")
[[ -n $VERSION ]] || die "$SOURCES/pom.xml names no rocketmq.version"
exec "$CLUSTER_DIR/test-image.sh" "$JAVA_IMAGE_NAME:$VERSION" "$CLUSTER_DIR/../images/java/Dockerfile" "$SOURCES/pom.xml" "$SOURCES/src"
