"""The cluster a command talks to: the addresses it was given, or the cluster on this machine.

Only the local cluster is looked up by itself, since only its addresses are reachable from here for
certain. What it refuses: to guess between several; a name server or a controller that is not given
and not local is an error that says which option to use.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, NamedTuple

from gantry_operator import names
from gantry_protocol.admin_client.quorum import Endpoint
from gantry_protocol.errors import ConfigError
from gantry_protocol.hosts import HOSTS_VARIABLE, join_address, split_address
from gantry_protocol.member_tls.asking import KnownTrust, SecretEntries
from gantry_protocol.process.config import load_settings

from gantry_cli.lazy import require_local
from gantry_cli.options import controllers_trust

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.client import Client
    from gantry_local.settings import LocalSettings

CONTROLLER_GROUP = "gantry"
NAMESPACE = "default"


class Admin(NamedTuple):
    """The controllers' addresses, and our credentials for them."""

    controllers: tuple[Endpoint, ...]
    token: str
    name_servers: tuple[str, ...] = ()
    quorum_key: bytes = b""


def local_settings(*, option: str = "") -> LocalSettings:
    """The local cluster that GANTRY_LOCAL_DIR (or the file of GANTRY_CONFIG) names.

    Raises:
        GantryError: no such cluster can be here; names `option` as the other way.
    """
    require_local(option and f"give {option}")
    from gantry_local.settings import LocalSettings

    return load_settings(LocalSettings, table="local")


async def name_servers(given: str | None) -> tuple[str, ...]:
    """The name servers to ask.

    Raises:
        ConfigError: none are given and no local cluster runs, or an address is malformed.
    """
    if given is not None:
        return _addresses(given, names.NAMESERVER_PORT)
    return (await _local("--nameserver")).name_servers


async def admin_of(controllers: str | None, token_file: Path | None) -> Admin:
    """The admin API to ask. Raises like `name_servers`."""
    if controllers is None:
        return await _local("--controllers")
    if token_file is None:
        raise ConfigError("--controllers needs --admin-token-file with the token to show them.")
    trust = controllers_trust()
    endpoints = [
        Endpoint(address, *split_address(address), trust)
        for address in _addresses(controllers, names.CONTROLLER_HTTP_PORT)
    ]
    return Admin(tuple(endpoints), _read_token(token_file))


def _read_token(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The admin token file {file} cannot be read: {error}.") from error


class LocalQuorum(NamedTuple):
    """The local cluster, to a process beside it.

    Attributes:
        name_servers: of it.
        controllers: their ports for brokers and proxies.
        quorum_key_file: has their key.
    """

    name_servers: tuple[str, ...]
    controllers: tuple[str, ...]
    quorum_key_file: Path


async def local_quorum() -> LocalQuorum:
    """The local cluster; its key is in a file from now on. Raises like `name_servers`."""
    from gantry_local.state import StateDir

    settings = local_settings(option="--nameserver")
    admin = await local_admin(settings, option="--nameserver")
    controllers = names.controllers(CONTROLLER_GROUP, len(admin.controllers), NAMESPACE)
    return LocalQuorum(
        admin.name_servers,
        tuple(controllers.split(",")),
        StateDir(settings.local_dir).save_quorum_key(admin.quorum_key),
    )


async def _local(option: str) -> Admin:
    return await local_admin(local_settings(option=option), option=option)


async def local_admin(settings: LocalSettings, *, option: str = "--controllers") -> Admin:
    """Addresses and token of the local cluster's ControllerGroup.

    From here on this process resolves the names of that cluster.

    Raises:
        ConfigError: no local cluster runs; names `option` as the other way.
    """
    from gantry_local import cluster
    from gantry_local.client import ApiError
    from gantry_local.state import StateDir

    state = StateDir(settings.local_dir)
    if state.daemon() is None:
        raise ConfigError(
            f"No cluster runs in {state.path}; start one with gantry local up, or give {option}."
        )
    os.environ[HOSTS_VARIABLE] = str(state.hosts)
    async with cluster.client(settings) as api:
        try:
            return await _discover(api)
        except (ApiError, KeyError) as error:
            raise ConfigError(
                f"The cluster in {state.path} has no ControllerGroup {CONTROLLER_GROUP} yet "
                f"({error}); see gantry local get pods."
            ) from error


async def _discover(api: Client) -> Admin:
    service = await api.get(
        await api.resource("services"), names.nameserver_service(CONTROLLER_GROUP), NAMESPACE
    )
    secret = await api.get(
        await api.resource("secrets"), names.admin_secret(CONTROLLER_GROUP), NAMESPACE
    )
    quorum = await api.get(
        await api.resource("secrets"), names.quorum_secret(CONTROLLER_GROUP), NAMESPACE
    )
    pods = await api.list(
        await api.resource("pods"),
        NAMESPACE,
        labels=",".join(
            f"{key}={value}"
            for key, value in names.selector(names.CONTROLLER, CONTROLLER_GROUP).items()
        ),
    )
    endpoints = [
        Endpoint(
            pod["metadata"]["name"],
            pod["status"]["podIP"],
            names.CONTROLLER_HTTP_PORT,
            await _trust(api, names.member_secret(pod)),
        )
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        if (pod.get("status") or {}).get("podIP")
    ]
    if not endpoints:
        raise KeyError("no controller pod has an address")
    return Admin(
        tuple(endpoints),
        base64.b64decode(secret["data"][names.TOKEN_KEY]).decode(),
        (join_address(service["spec"]["clusterIP"], names.NAMESERVER_PORT),),
        base64.b64decode(quorum["data"][names.QUORUM_KEY]),
    )


async def _trust(api: Client, secret: str | None) -> KnownTrust | None:
    """The trust in a controller to whom this Secret was given, as it is now; None without one."""
    if secret is None:
        return None
    body = await api.get(await api.resource("secrets"), secret, NAMESPACE)
    return KnownTrust(SecretEntries.of(body.get("data") or {}, secret).context(secret))


def _addresses(text: str, default_port: int) -> tuple[str, ...]:
    """`a:1,b;c` taken apart; upstream separates name servers by semicolons."""
    found = tuple(
        join_address(*split_address(part, default_port))
        for part in text.replace(";", ",").split(",")
        if part.strip()
    )
    if not found:
        raise ConfigError(f"{text!r} names no address; write host:port,host:port.")
    return found
