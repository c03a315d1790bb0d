#!/usr/bin/env bash
# The image of the tests' S3 server (moto, in memory). Prints its name.
source "$(dirname "$0")/lib.sh"

exec "$CLUSTER_DIR/test-image.sh" "$STORE_IMAGE" "$CLUSTER_DIR/../images/store/Dockerfile" "$ROOT_DIR/constraints-moto.txt" "$ROOT_DIR/tests/support/moto_main.py"
