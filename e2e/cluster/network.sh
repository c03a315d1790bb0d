#!/usr/bin/env bash
# Pod network of the test cluster: on each node a ptp + host-local + portmap configuration for the node's pod CIDR,
# and routes to the other nodes' CIDRs. Routes vanish when a node restarts; run this again then.
source "$(dirname "$0")/lib.sh"

mapfile -t NODES < <(kind get nodes --name "$CLUSTER_NAME" 2>/dev/null)
declare -A ADDRESS POD_CIDR
for node in "${NODES[@]}"; do
    ADDRESS[$node]=$(docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$node")
    for _ in $(seq 60); do
        POD_CIDR[$node]=$(kubectl get node "$node" -o 'jsonpath={.spec.podCIDR}' 2>/dev/null || true)
        [[ -n ${POD_CIDR[$node]} ]] && break
        sleep 0.5
    done
    [[ -n ${POD_CIDR[$node]} ]] || die "node $node has no pod CIDR after 30 s"
done
for node in "${NODES[@]}"; do
    docker exec -i "$node" sh -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-ptp.conflist' <<JSON
{"cniVersion": "0.3.1", "name": "ptp", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "${POD_CIDR[$node]}"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
    for peer in "${NODES[@]}"; do
        [[ $peer == "$node" ]] || docker exec "$node" ip route replace "${POD_CIDR[$peer]}" via "${ADDRESS[$peer]}"
    done
done
