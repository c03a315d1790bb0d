#!/usr/bin/env bash
# The metrics server, which a HorizontalPodAutoscaler asks for CPU use, built from its module and run by its own
# manifests. Kubelets of the test cluster sign their certificates themselves, so these are not checked.
source "$(dirname "$0")/lib.sh"

"$CLUSTER_DIR/binaries.sh" metrics
image=$("$CLUSTER_DIR/test-image.sh" "gantry-test/metrics-server:$METRICS_SERVER_VERSION" \
    "$CLUSTER_DIR/../images/metrics-server/Dockerfile" "$BIN_DIR/metrics-server")

apply() {
    local source manifests
    source=$(go mod download -json "sigs.k8s.io/metrics-server@$METRICS_SERVER_VERSION" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
    manifests=$(mktemp -d "$CACHE_DIR/metrics-server.XXXXXX")
    cp "$source"/manifests/base/*.yaml "$manifests/" && chmod -R u+w "$manifests"
    sed -i "s#image: .*#image: $image#; s#\( *\)- --metric-resolution=.*#&\n\1- --kubelet-insecure-tls#" "$manifests/deployment.yaml"
    kubectl apply -k "$manifests"
    rm -rf "$manifests"
    kubectl -n kube-system rollout status deployment metrics-server --timeout=180s
    kubectl wait --for=condition=Available apiservice v1beta1.metrics.k8s.io --timeout=120s
}
step "metrics server" apply
