"""The cluster of one machine over Kubernetes' own API server, where its programs are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_local.real.binaries import Binaries, find
from gantry_protocol.errors import ConfigError
from support.cli_cluster import CliCluster

EARLIEST = "earliest"
EMULATED = 3
"""So many minor versions back can an API server go."""


def earliest(binaries: Binaries) -> str:
    """The earliest version of Kubernetes whose API these programs serve, as `1.31`."""
    said = subprocess.run(
        [binaries.apiserver, "--version"], capture_output=True, text=True, check=True
    ).stdout
    major, minor, *_ = said.removeprefix("Kubernetes v").split(".")
    return f"{major}.{int(minor) - EMULATED}"


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of Kubernetes' control plane."""
    named = os.environ.get("GANTRY_API_BINARIES")
    try:
        return find(Path(named) if named else None)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def real(
    request: pytest.FixtureRequest,
    binaries: Binaries,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CliCluster]:
    """A cluster of one controller; stopped and deleted afterwards.

    Its parameter is the version of Kubernetes that its API is to be, by default the programs' own.
    """
    cluster = CliCluster(tmp_path_factory.mktemp("real") / "local")
    cluster.place["GANTRY_API_BINARIES"] = str(binaries.etcd.parent)
    wanted = getattr(request, "param", "")
    if wanted == EARLIEST:
        wanted = earliest(binaries)
    version = ("--api-emulated", wanted) if wanted else ()
    try:
        cluster.gantry("local", "up", "--api", "real", "--controller-replicas", "1", *version)
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")
