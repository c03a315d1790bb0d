#!/usr/bin/env bash
# The demonstration on a real cluster: brings it up, builds and loads the image, and plays demo.py.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE

begin_steps "$IMAGE" "$STORE_IMAGE" "$LAB_IMAGE"
"$CLUSTER_DIR/up.sh"
"$CLUSTER_DIR/image.sh"
GANTRY_E2E_STORE_IMAGE=$("$CLUSTER_DIR/store-image.sh")
GANTRY_LAB_IMAGE=$("$CLUSTER_DIR/lab-image.sh")
export GANTRY_E2E_STORE_IMAGE GANTRY_LAB_IMAGE
.venv/bin/python e2e/demo.py
