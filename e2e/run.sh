#!/usr/bin/env bash
# The whole end-to-end run: cluster, images, the API contract on the real API server, the scenarios, the report.
# The cluster stays for the next run; e2e/cluster/down.sh removes it. Arguments go to pytest, for example -k paused.
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE

"$CLUSTER_DIR/up.sh"

# The contract needs the API server alone, so it runs while images are built and loaded.
mkdir -p build/e2e
GANTRY_CONTRACT_KUBECONFIG=$KUBECONFIG .venv/bin/python -m pytest -q tests/integration/api_contract >build/e2e/contract.txt 2>&1 &
contract=$!
trap 'kill $contract 2>/dev/null || true' EXIT

"$CLUSTER_DIR/image.sh"
"$CLUSTER_DIR/pipeline-image.sh"
GANTRY_E2E_JAVA_IMAGE=$("$CLUSTER_DIR/java-image.sh")
GANTRY_E2E_STORE_IMAGE=$("$CLUSTER_DIR/store-image.sh")
export GANTRY_E2E_JAVA_IMAGE GANTRY_E2E_STORE_IMAGE

say "API contract:"
wait $contract || { cat build/e2e/contract.txt; exit 1; }
tail -1 build/e2e/contract.txt
say "scenarios:"
.venv/bin/python -m pytest -v -s --durations=12 e2e "$@"
