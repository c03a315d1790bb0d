#!/usr/bin/env bash
# The image of the load in pods: what image.sh has built, and the lab. Prints its name.
source "$(dirname "$0")/lib.sh"

export BASE=$IMAGE
exec "$CLUSTER_DIR/test-image.sh" "$LAB_IMAGE" "$CLUSTER_DIR/../images/lab/Dockerfile" "$ROOT_DIR/lab/gantry_lab" "$ROOT_DIR/chaos/gantry_chaos"
