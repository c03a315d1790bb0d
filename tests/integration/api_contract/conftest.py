"""The server under contract: our own by default, any cluster by GANTRY_CONTRACT_KUBECONFIG.

Every statement here held on kube-apiserver 1.34.4 with its controller manager when it was written.
Each test has a namespace of its own; the Widget definition stays behind.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.contract_api import CRDS, WIDGET_CRD, WIDGETS, ContractApi, Refused
from support.pretend_cluster import PretendCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ContractApi]:
    """A client with a namespace of its own and the Widget kind served."""
    given = os.environ.get("GANTRY_CONTRACT_KUBECONFIG")
    if given:
        async with ContractApi(Path(given)) as client:
            await _prepare(client)
            yield client
            await client.delete(f"/api/v1/namespaces/{client.ns}")
        return
    async with PretendCluster() as cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with ContractApi(path) as client:
            client.compact = cluster.api.compact
            await _prepare(client)
            yield client


async def _prepare(client: ContractApi) -> None:
    client.ns = f"contract-{secrets.token_hex(4)}"
    await client.create("/api/v1/namespaces", {"metadata": {"name": client.ns}})
    await client.apply(f"{CRDS}/{WIDGET_CRD['metadata']['name']}", WIDGET_CRD, force=True)
    await client.until(f"{CRDS}/{WIDGET_CRD['metadata']['name']}", _established)
    await client.until(WIDGETS, lambda found: found is not None)


def _established(crd: dict[str, object] | None) -> bool:
    status = (crd or {}).get("status")
    assert isinstance(status, dict | None)
    conditions = (status or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture
def refused() -> type[Refused]:
    """The exception of refusals, for ``pytest.raises``."""
    return Refused
