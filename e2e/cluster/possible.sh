#!/usr/bin/env bash
# Whether the test cluster can be had here: exit 0, or exit 1 after one line that says why not.
source "$(dirname "$0")/lib.sh"

free_gib=$(df --output=avail -BG "$CACHE_DIR" | tail -n 1 | tr -dc 0-9)
if ((free_gib < FREE_GIB_MIN)); then
    printf '%s has %d GiB of free disk, the test cluster needs %d\n' "$CACHE_DIR" "$free_gib" "$FREE_GIB_MIN"
    exit 1
fi
if ! said=$("$CLUSTER_DIR/docker-up.sh" 2>&1 | tee >(cat >&2)); then
    printf 'Docker does not start: %s\n' "$(tail -n 1 <<<"$said")"
    exit 1
fi
