# Shared by the cluster scripts: where things are kept, and steps that say how long they took.
# shellcheck shell=bash
set -euo pipefail

CLUSTER_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT_DIR=$(cd "$CLUSTER_DIR/../.." && pwd)
# shellcheck source=versions.env
source "$CLUSTER_DIR/versions.env"

# Outside the checkout, so that a fresh clone finds what an earlier one built.
CACHE_DIR=${GANTRY_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/gantry}/cluster
BIN_DIR=$CACHE_DIR/bin
LOG_DIR=$CACHE_DIR/log
DOCKERD_PID=$CACHE_DIR/dockerd.pid
mkdir -p "$BIN_DIR" "$LOG_DIR"
export PATH=$BIN_DIR:$PATH
export KUBECONFIG=${GANTRY_KUBECONFIG:-$CACHE_DIR/kubeconfig}

FREE_GIB_MIN=12 # node image, its build cache and three nodes take about 8

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# step NAME COMMAND...: runs it quietly, prints its time; on failure shows the end of its log.
step() {
    local name=$1 log started
    shift
    log=$LOG_DIR/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9.-' '_').log
    started=$SECONDS
    printf '  %-46s ' "$name" >&2
    # In the background, because `set -e` is switched off inside a condition.
    "$@" >"$log" 2>&1 &
    if wait $!; then
        printf '%4d s\n' $((SECONDS - started)) >&2
    else
        printf 'failed after %d s; last lines of %s:\n' $((SECONDS - started)) "$log" >&2
        tail -n 25 "$log" >&2
        exit 1
    fi
}

have_image() { docker image inspect "$1" >/dev/null 2>&1; }
