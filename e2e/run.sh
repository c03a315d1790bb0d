#!/usr/bin/env bash
# The whole end-to-end run: what prepare.sh does (GANTRY_E2E_PREPARED=1: it has just been done), then the scenarios and
# the report. The cluster stays for the next run; e2e/cluster/down.sh removes it. Arguments go to pytest, for example
# -k paused, or e2e/test_node.py; all files where none is named.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"

[[ ${GANTRY_E2E_PREPARED:-} == 1 ]] || e2e/prepare.sh
GANTRY_E2E_JAVA_IMAGE=$("$CLUSTER_DIR/java-image.sh")
GANTRY_E2E_STORE_IMAGE=$("$CLUSTER_DIR/store-image.sh")
GANTRY_LAB_IMAGE=$("$CLUSTER_DIR/lab-image.sh")
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE GANTRY_E2E_JAVA_IMAGE GANTRY_E2E_STORE_IMAGE GANTRY_LAB_IMAGE

[[ " $* " == *" e2e/"* ]] || set -- e2e "$@"
say "scenarios:"
.venv/bin/python -m pytest -v -s --durations=12 "$@"
