#!/usr/bin/env bash
# An upgrade of many groups on a real cluster: brings it up, and plays fleet.py; writes build/fleet/.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE

begin_steps "$IMAGE"
"$CLUSTER_DIR/up.sh"
"$CLUSTER_DIR/image.sh"
GANTRY_E2E_JAVA_IMAGE=$("$CLUSTER_DIR/java-image.sh")
export GANTRY_E2E_JAVA_IMAGE
.venv/bin/python e2e/fleet.py "$@"
