# The base of a kind node from Debian packages alone; follows the images/base/Dockerfile of sigs.k8s.io/kind.
ARG BASE_IMAGE=debian:trixie-slim
FROM $BASE_IMAGE
# Packages first: dpkg would ask about configuration files that are already there.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        systemd conntrack iptables nftables iproute2 ethtool util-linux mount kmod libseccomp2 pigz e2fsprogs \
        bash ca-certificates curl jq procps containerd runc containernetworking-plugins \
    && rm -rf /var/lib/apt/lists/*
COPY files/ /
RUN find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete \
    && rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
        /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
        /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/* \
    && echo ReadKMsg=no >> /etc/systemd/journald.conf \
    && ln -sf /usr/lib/systemd/systemd /sbin/init \
    && mkdir -p /usr/local/sbin /opt/cni /etc/kubernetes/manifests \
    && for tool in containerd ctr containerd-shim-runc-v2; do ln -sf /usr/bin/$tool /usr/local/bin/$tool; done \
    && ln -sf "$(command -v runc)" /usr/local/sbin/runc \
    && ln -sfn /usr/lib/cni /opt/cni/bin \
    && ctr oci spec \
        | jq '.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"}' \
        | jq 'del(.process.rlimits)' > /etc/containerd/cri-base.json \
    && systemctl enable kubelet.service containerd.service undo-mount-hacks.service \
    && systemctl mask systemd-binfmt.service
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
