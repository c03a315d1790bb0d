#!/usr/bin/env bash
# Load ×10 and back on a real cluster: brings it up with a metrics server, and plays load.py; writes build/load/.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE

begin_steps "$IMAGE"
"$CLUSTER_DIR/up.sh"
"$CLUSTER_DIR/metrics-server.sh"
"$CLUSTER_DIR/image.sh"
GANTRY_E2E_JAVA_IMAGE=$("$CLUSTER_DIR/java-image.sh")
export GANTRY_E2E_JAVA_IMAGE
.venv/bin/python e2e/load.py "$@"
