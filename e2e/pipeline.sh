#!/usr/bin/env bash
# The pipeline on a cluster that runs (make cluster-up): executors as pods give the rows of one machine, and an audit
# and `gantry tier verify` name the same objects and offsets. Takes about ten minutes, the image not counted.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"
export CLUSTER_NAME PIPELINE_IMAGE

"$CLUSTER_DIR/pipeline-image.sh"
GANTRY_E2E_STORE_IMAGE=$("$CLUSTER_DIR/store-image.sh")
export GANTRY_E2E_STORE_IMAGE
PYTHONPATH=tests:e2e .venv/bin/python e2e/pipeline.py "$@"
