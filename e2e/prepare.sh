#!/usr/bin/env bash
# All that the scenarios need, in about two minutes: the cluster, Gantry's images and those of the tests, and the API
# contract proved on the real API server. Where all that is there already, only the contract takes time, and then
# `gantry local up --api real`, which needs the cluster's programs and nothing of the cluster.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"

begin_steps "$IMAGE" "$PIPELINE_IMAGE" "$STORE_IMAGE" "$LAB_IMAGE"
"$CLUSTER_DIR/up.sh"

# The contract needs the API server alone, so it runs while images are built and loaded.
mkdir -p build/e2e
GANTRY_CONTRACT_KUBECONFIG=$KUBECONFIG .venv/bin/python -m pytest -q tests/integration/api_contract >build/e2e/contract.txt 2>&1 &
contract=$!
trap 'kill $contract 2>/dev/null || true' EXIT

"$CLUSTER_DIR/image.sh"
"$CLUSTER_DIR/pipeline-image.sh"
"$CLUSTER_DIR/java-image.sh" >/dev/null
"$CLUSTER_DIR/store-image.sh" >/dev/null
"$CLUSTER_DIR/lab-image.sh" >/dev/null

say "API contract:"
wait $contract || { cat build/e2e/contract.txt; exit 1; }
tail -1 build/e2e/contract.txt >&2

# In the foreground, so that Ctrl-C ends what it starts. Skipped where the node image was pulled: no programs then. The
# contract on the programs' own version has just been proved, so it is only asked for as an older one.
say "gantry local over a real API server:"
nice .venv/bin/python -m pytest -q tests/integration/real_api -k "not own-version" --durations=5 >build/e2e/real-api.txt 2>&1 || { cat build/e2e/real-api.txt; exit 1; }
tail -1 build/e2e/real-api.txt >&2
