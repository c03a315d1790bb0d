"""The contract that our API server is tested by, judged by the server that it stands for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from integration.real_api.conftest import EARLIEST
from support.cli_cluster import ROOT, CliCluster

VERSIONS = ("", EARLIEST)
"""Kubernetes whose API is served: that of the programs, and the earliest that they can be."""


@pytest.mark.parametrize("real", VERSIONS, indirect=True, ids=["own-version", "earliest"])
def test_it_keeps_the_contract(real: CliCluster) -> None:
    judged = os.environ | {"GANTRY_CONTRACT_KUBECONFIG": str(real.directory / "kubeconfig")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/integration/api_contract"]
    done = subprocess.run(
        command, cwd=ROOT, env=judged, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
