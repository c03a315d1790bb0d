#!/usr/bin/env bash
# An upgrade from another version on a real cluster: brings it up, and plays upgrade.py; writes build/upgrade/.
#   FROM=REF     that version, as git names it; the newest tag v* where it is not said
source "$(dirname "$0")/cluster/lib.sh"
cd "$ROOT_DIR"

FROM=${FROM:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
[[ -n $FROM ]] || die "there is no tag v* to upgrade from; name another version: make e2e-upgrade FROM=REF"
commit=$(git rev-parse --verify --quiet "$FROM^{commit}") || die "git knows no version $FROM; fetch it, or name another: make e2e-upgrade FROM=REF"

PREVIOUS_IMAGE=gantry:previous
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$commit" | tar -x -C "$before"

begin_steps "$IMAGE" "$PREVIOUS_IMAGE"
"$CLUSTER_DIR/up.sh"
"$CLUSTER_DIR/image.sh"
"$CLUSTER_DIR/image.sh" "$PREVIOUS_IMAGE" "$before"
GANTRY_E2E_JAVA_IMAGE=$("$CLUSTER_DIR/java-image.sh")
export CLUSTER_NAME GANTRY_E2E_IMAGE=$IMAGE GANTRY_E2E_JAVA_IMAGE
.venv/bin/python e2e/upgrade.py --source "$before" --image "$PREVIOUS_IMAGE" --version "$FROM" "$@"
