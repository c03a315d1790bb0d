#!/usr/bin/env bash
# Provides debian:<suite>-slim: the one that is there, else the one that can be pulled, else a minimal Debian made
# with debootstrap from the mirror that apt already uses.
source "$(dirname "$0")/lib.sh"

IMAGE=debian:$DEBIAN_SUITE-slim
have_image "$IMAGE" && exit 0
timeout 20 docker pull -q "$IMAGE" >/dev/null 2>&1 && exit 0

command -v debootstrap >/dev/null || step "install debootstrap" sh -c 'apt-get update -qq && apt-get install -y -qq debootstrap'

debian_from_mirror() {
    local mirror tree
    mirror=$(sed -n 's/^URIs: //p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
    [[ -n $mirror ]] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)*\([^ ]*\).*/\2/p' /etc/apt/sources.list | head -n 1)
    [[ -n $mirror ]]
    tree=$(mktemp -d "$CACHE_DIR/debian.XXXXXX")
    # shellcheck disable=SC2064 # the directory of now, not of the time of the signal
    trap "rm -rf '$tree'" EXIT
    debootstrap --variant=minbase --include=ca-certificates "$DEBIAN_SUITE" "$tree" "$mirror"
    # What Debian's own slim images leave out.
    rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,man,info}
    find "$tree/usr/share/locale" -mindepth 1 -maxdepth 1 ! -name locale.alias -exec rm -rf {} +
    # Lets apt in later builds reach the same mirror through the same certificates as the host.
    cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/ca-certificates.crt"
    tar -C "$tree" -c . | docker import --change 'CMD ["bash"]' - "$IMAGE"
}
step "make $IMAGE" debian_from_mirror
