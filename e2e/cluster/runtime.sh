#!/usr/bin/env bash
# Puts runc-again before each node's runc, at any time: there is a runc at every moment.
source "$(dirname "$0")/lib.sh"

mapfile -t NODES < <(kind get nodes --name "$CLUSTER_NAME" 2>/dev/null)
for node in "${NODES[@]}"; do
    docker exec "$node" sh -c '[ -e /usr/local/sbin/runc.real ] || cp -a /usr/local/sbin/runc /usr/local/sbin/runc.real'
    docker exec -i "$node" sh -c 'cat >/usr/local/sbin/runc.new && chmod 0755 /usr/local/sbin/runc.new && mv /usr/local/sbin/runc.new /usr/local/sbin/runc' <"$CLUSTER_DIR/runc-again"
done
