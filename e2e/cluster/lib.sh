# Shared by the cluster scripts: where things are kept, steps that say how far they are, daemons.
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

# shellcheck source=daemons.sh
source "$CLUSTER_DIR/daemons.sh"
# shellcheck source=progress.sh
source "$CLUSTER_DIR/progress.sh"

have_image() { docker image inspect "$1" >/dev/null 2>&1; }
