#!/usr/bin/env bash
# Brings the test cluster up: Docker, node image, kind cluster, pod network. Does nothing where it already runs.
source "$(dirname "$0")/lib.sh"

say "test cluster $CLUSTER_NAME:"
begin_steps
"$CLUSTER_DIR/binaries.sh" tools
"$CLUSTER_DIR/node-image.sh"
if ! command -v kubectl >/dev/null; then "$CLUSTER_DIR/binaries.sh" node; fi

if ! kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    step "create cluster" kind create cluster --name "$CLUSTER_NAME" --image "$NODE_IMAGE" --config "$CLUSTER_DIR/kind.yaml" --kubeconfig "$KUBECONFIG"
else
    kind export kubeconfig --name "$CLUSTER_NAME" --kubeconfig "$KUBECONFIG" >/dev/null 2>&1
fi
step "runtime of the nodes" "$CLUSTER_DIR/runtime.sh"
step "guard against stray traffic" "$CLUSTER_DIR/guard.sh" on
step "pod network" "$CLUSTER_DIR/network.sh"
step "nodes ready" kubectl wait --for=condition=Ready nodes --all --timeout=120s
step "system pods ready" kubectl wait --for=condition=Ready pods --all -n kube-system --timeout=180s
step "storage ready" kubectl -n local-path-storage rollout status deployment local-path-provisioner --timeout=120s
