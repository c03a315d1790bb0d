"""Evictions ask the disruption budget; the pods are made up, and no scheduler takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.contract_api import ContractApi, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

PODS = "/api/v1/namespaces/{ns}/pods"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"


async def evict(api: ContractApi, name: str) -> dict[str, Any]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await api.create(f"{PODS}/{name}/eviction", body)


async def budget(api: ContractApi, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": "x"}}, **spec}
    await api.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    await api.until(f"{BUDGETS}/b", observed)


def observed(found: dict[str, Any] | None) -> bool:
    return bool(found and (found.get("status") or {}).get("observedGeneration"))


def allows(count: int) -> Callable[[dict[str, Any] | None], bool]:
    return lambda found: bool(found and found["status"].get("disruptionsAllowed") == count)


async def pod(api: ContractApi, name: str) -> None:
    spec = {
        "schedulerName": "nobody",  # or a kubelet would say that they are not Ready
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "nowhere.invalid/none"}],
    }
    await api.create(PODS, {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await api.merge(f"{PODS}/{name}/status", {"status": status})


async def test_without_a_budget_an_eviction_is_a_deletion(api: ContractApi) -> None:
    await pod(api, "p")
    answer = await evict(api, "p")
    assert answer["status"] == "Success"
    await api.until(
        f"{PODS}/p", lambda found: found is None or "deletionTimestamp" in found["metadata"]
    )


async def test_a_spent_budget_refuses(api: ContractApi) -> None:
    for name in ("a", "b"):
        await pod(api, name)
    await budget(api, minAvailable=2)
    await api.until(
        f"{BUDGETS}/b", lambda found: bool(found and found["status"]["currentHealthy"] == 2)
    )
    with pytest.raises(Refused) as refused:
        await evict(api, "a")
    assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")
    assert "would violate the pod's disruption budget" in refused.value.message
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/a"))["metadata"]


async def test_a_budget_is_spent_once(api: ContractApi) -> None:
    for name in ("a", "b", "c"):
        await pod(api, name)
    await budget(api, minAvailable=2)
    await api.until(f"{BUDGETS}/b", allows(1))
    await evict(api, "a")
    with pytest.raises(Refused) as refused:
        await evict(api, "b")
    assert refused.value.code == 429


async def test_evicting_nobody(api: ContractApi) -> None:
    with pytest.raises(Refused) as refused:
        await evict(api, "nobody")
    assert refused.value.code == 404
