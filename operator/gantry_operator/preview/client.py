"""The API server as people reach it, with their own rights; to look at it without other verbs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_protocol.errors import GantryError
from kubernetes.aio import config as client_config

from gantry_operator.api.credentials import Credentials
from gantry_operator.api.kube import KubeApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gantry_operator.api.protocol import Api, ReadOnlyApi, SupportApi

DEFAULT_NAMESPACE = "default"
_contexts: Any = client_config.list_kube_config_contexts  # it has no types


@contextlib.asynccontextmanager
async def reading(kubeconfig: Path | None) -> AsyncIterator[ReadOnlyApi]:
    """The API server that a kubeconfig names, to be looked at.

    Raises:
        GantryError: there is no way to it.
    """
    async with connected(kubeconfig) as api:
        yield api


@contextlib.asynccontextmanager
async def inspecting(kubeconfig: Path | None) -> AsyncIterator[SupportApi]:
    """The same with logs.

    Raises:
        GantryError: there is no way to it.
    """
    async with _client(kubeconfig) as api:
        yield api


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path | None) -> AsyncIterator[Api]:
    """The same with all verbs that write; see `Credentials` for the default.

    Raises:
        GantryError: there is no way to it.
    """
    async with _client(kubeconfig) as api:
        yield api


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
    credentials = Credentials(kubeconfig)
    await credentials.load()
    api = KubeApi(credentials)
    try:
        yield api
    finally:
        await api.close()


def namespace_of(kubeconfig: Path | None) -> str:
    """The namespace of the kubeconfig's current context."""
    try:
        _, active = _contexts(str(kubeconfig) if kubeconfig is not None else None)
    except (client_config.ConfigException, OSError, ValueError, TypeError):
        return os.environ.get("POD_NAMESPACE", DEFAULT_NAMESPACE)
    found = (active or {}).get("context", {}).get("namespace")
    return found if isinstance(found, str) and found else DEFAULT_NAMESPACE


def named_file(path: str | None) -> Path | None:
    """A kubeconfig that was named.

    Raises:
        GantryError: there is no such file.
    """
    if path is None:
        return None
    if not Path(path).is_file():
        raise GantryError(f"There is no kubeconfig {path}: give --kubeconfig one that exists.")
    return Path(path)
