#!/usr/bin/env bash
# Makes a Docker engine answer: uses the one that runs, else starts it, else installs it (root on Debian only).
source "$(dirname "$0")/lib.sh"

docker info >/dev/null 2>&1 && exit 0
[[ $(id -u) == 0 ]] || die "Docker does not answer; start it, or run as root on Debian so that it can be installed"
if ! command -v dockerd >/dev/null; then
    command -v apt-get >/dev/null || die "Docker is not installed; install Docker and run this again"
    step "install Docker" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq docker.io iptables iproute2 debootstrap'
fi

# Where the host itself lacks a capability (CAP_SYS_RESOURCE in some virtual machines) a privileged container
# cannot get it and runc refuses. A wrapper that asks for what the host has is then the default runtime.
CAP_SYS_RESOURCE=24
bounding=0x$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)
if (( (bounding >> CAP_SYS_RESOURCE & 1) == 0 )) && [[ ! -e /etc/docker/daemon.json ]]; then
    install -D -m 0755 "$CLUSTER_DIR/runc_within_host_caps.py" /usr/local/libexec/gantry-runc
    mkdir -p /etc/docker
    printf '{"default-runtime": "within-host-caps", "runtimes": {"within-host-caps": {"path": "/usr/local/libexec/gantry-runc"}}}\n' >/etc/docker/daemon.json
fi

step "start Docker" start_docker
