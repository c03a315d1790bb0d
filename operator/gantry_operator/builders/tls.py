"""Settings and files of pods that speak TLS to clients, and with each other.

The Secret is mounted whole and as files: the kubelet replaces them when it changes, and processes
follow them, so a new certificate restarts no pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.process.config import variable_name

from gantry_operator import names
from gantry_operator.builders import pods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models.listeners import ListenerWish
    from gantry_operator.models.tls import MemberTlsWish, TlsWish

_FILES = {"tls_cert_file": "tls.crt", "tls_key_file": "tls.key", "tls_ca_file": "ca.crt"}


def tls_env(tls: TlsWish | None) -> tuple[Manifest, ...]:
    """The settings; none without TLS. A Secret without `ca.crt` is the processes' to judge."""
    if tls is None:
        return ()
    files = {name: f"{names.TLS_DIR}/{file}" for name, file in _FILES.items()}
    values = files | {"tls_mode": tls.mode.lower()}
    return tuple(pods.value(variable_name(name), text) for name, text in values.items())


def tls_files(tls: TlsWish | None) -> tuple[pods.MountedSecret, ...]:
    """The Secret; none without TLS."""
    if tls is None:
        return ()
    return (pods.secret_files("tls", tls.secret_name, names.TLS_DIR),)


def listener_env(
    listeners: Iterable[ListenerWish], ports: Iterable[tuple[str, int]] = ()
) -> tuple[Manifest, ...]:
    """The settings of listeners with TLS of their own; none without any.

    Args:
        listeners: all of them.
        ports: name and port of those that are to be listened at for these settings' sake.
    """
    found = [f"{one.name}={_choice(one)}" for one in listeners if one.tls is not None]
    if not found:
        return ()
    values = {"listener_tls": ",".join(found)}
    if at := ",".join(f"{name}={port}" for name, port in ports):
        values = {"listeners": at} | values
    return tuple(pods.value(variable_name(name), text) for name, text in values.items())


def _choice(listener: ListenerWish) -> str:
    assert listener.tls is not None
    mode = listener.tls.mode.lower()
    if mode == "disabled" or listener.tls.secret_name is None:
        return mode
    return f"{mode}:{names.LISTENER_TLS_DIR}/{listener.name}"


def listener_files(listeners: Iterable[ListenerWish]) -> tuple[pods.MountedSecret, ...]:
    """The Secrets of listeners; pods start without those that do not exist."""
    return tuple(
        pods.MountedSecret(
            names.listener_volume(listener.name),
            {
                "secretName": listener.tls.secret_name,
                "defaultMode": pods.READABLE_BY_GROUP,
                "optional": True,
            },
            f"{names.LISTENER_TLS_DIR}/{listener.name}",
        )
        for listener in listeners
        if listener.tls is not None
        and listener.tls.mode != "Disabled"
        and listener.tls.secret_name is not None
    )


def member_env(tls: MemberTlsWish | None) -> tuple[Manifest, ...]:
    """The same of TLS between members."""
    if tls is None:
        return ()
    files = {f"member_{name}": f"{names.MEMBER_TLS_DIR}/{file}" for name, file in _FILES.items()}
    values = files | {"member_tls_mode": tls.mode.lower()}
    return tuple(pods.value(variable_name(name), text) for name, text in values.items())


def member_files(tls: MemberTlsWish | None) -> tuple[pods.MountedSecret, ...]:
    """The Secret of members; none without it."""
    if tls is None:
        return ()
    return (pods.secret_files(names.MEMBER_TLS_VOLUME, tls.secret_name, names.MEMBER_TLS_DIR),)
