#!/usr/bin/env bash
# Takes the test cluster down and leaves nothing of it behind; built images and binaries stay in the cache.
source "$(dirname "$0")/lib.sh"

docker info >/dev/null 2>&1 || exit 0
if command -v kind >/dev/null && kind get clusters 2>/dev/null | grep -qx "$CLUSTER_NAME"; then
    step "delete cluster" kind delete cluster --name "$CLUSTER_NAME" --kubeconfig "$KUBECONFIG"
fi
docker network inspect kind >/dev/null 2>&1 && docker network rm kind >/dev/null 2>&1 || true

"$CLUSTER_DIR/guard.sh" off

# A Docker engine that docker-up.sh started goes too, unless somebody else uses it by now.
if [[ -f $DOCKERD_PID && -z $(docker ps -q) ]]; then
    pid=$(<"$DOCKERD_PID")
    stop_docker() {
        kill "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
    }
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) != dockerd ]] || step "stop Docker" timeout 60 bash -c "$(declare -f stop_docker); pid=$pid; stop_docker"
    rm -f "$DOCKERD_PID"
fi
