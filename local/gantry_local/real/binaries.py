"""The programs of Kubernetes' control plane on this machine: named directory, or else the PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from gantry_protocol.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = ("etcd", "kube-apiserver", "kube-controller-manager")


class Binaries(msgspec.Struct, frozen=True):
    """The paths of the programs."""

    etcd: Path
    apiserver: Path
    controller_manager: Path


def find(directory: Path | None, environment: Mapping[str, str] = os.environ) -> Binaries:
    """The programs in ``directory``, or those on the PATH without one.

    Raises:
        ConfigError: one is missing; the sentence says where to get it.
    """
    places = str(directory) if directory is not None else environment.get("PATH", "")
    found = {name: shutil.which(name, path=places) for name in NAMES}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        where = f"in {directory}" if directory is not None else "on the PATH"
        raise ConfigError(
            f"There is no {missing[0]} {where}, so --api real is not possible; build it with make "
            "api-binaries in Gantry's repository (Go 1.24, some minutes), and name the directory "
            "that this prints with --api-binaries or GANTRY_API_BINARIES."
        )
    etcd, apiserver, manager = (Path(str(found[name])).absolute() for name in NAMES)
    return Binaries(etcd, apiserver, manager)
