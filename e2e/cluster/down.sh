#!/usr/bin/env bash
# Takes the test cluster down and leaves nothing of it behind; built images and binaries stay in the cache.
source "$(dirname "$0")/lib.sh"

docker info >/dev/null 2>&1 || exit 0
if command -v kind >/dev/null && kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    step "delete cluster" kind delete cluster --name "$CLUSTER_NAME" --kubeconfig "$KUBECONFIG"
fi
docker network inspect kind >/dev/null 2>&1 && docker network rm kind >/dev/null 2>&1 || true

"$CLUSTER_DIR/guard.sh" off
