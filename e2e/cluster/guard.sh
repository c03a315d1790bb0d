#!/usr/bin/env bash
# Keeps test traffic on this machine: a pod that dials a stale cluster address must not reach the host's network.
source "$(dirname "$0")/lib.sh"

OUTGOING=$(ip route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
[[ -n $OUTGOING ]] || exit 0
RULE=(-o "$OUTGOING" -m conntrack --ctstate NEW -m comment --comment gantry-test-cluster -j REJECT)
case ${1:-on} in
    on) iptables -C DOCKER-USER "${RULE[@]}" 2>/dev/null || iptables -I DOCKER-USER "${RULE[@]}" ;;
    off) while iptables -D DOCKER-USER "${RULE[@]}" 2>/dev/null; do :; done ;;
    *) die "guard.sh takes on or off, got: $1" ;;
esac
