"""What is so of groups while something is wrong with one of them: `support.sabotage`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count, cycle
from typing import Any, Final

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, EVENT, POD
from support.contract_api import ContractApi
from support.patience import PATIENCE_S
from support.sabotage import NAMESPACE, NEIGHBOUR, VICTIM, Sabotage

_TURNS: Final = count(1000)
_SPOILS: Final = {
    name: cycle([{names.LABEL_ROLE: "spoilt"}, {names.LABEL_TRAFFIC: names.TRAFFIC_OFF}])
    for name in (VICTIM, NEIGHBOUR)
}
"""Another label each time: who takes back the very same one again and again fights the operator,
which says so and waits."""


async def is_answered(api: ContractApi, sabotage: Sabotage) -> None:
    """By a condition of the resource, or by an event."""
    if sabotage.condition:
        path = sabotage.kind.path(NAMESPACE, sabotage.name)
        await condition(api, path, sabotage.condition, sabotage.reason, sabotage.words)
        return

    def said(listed: Any) -> bool:
        return any(
            event["reason"] == sabotage.reason and sabotage.words in event["message"]
            for event in listed["items"]
        )

    await api.until(EVENT.path(NAMESPACE), said)


async def condition(api: ContractApi, path: str, type_: str, reason: str, words: str) -> None:
    """Waits until a resource has a condition with this reason and words."""
    last: list[Any] = []

    def is_so(found: Any) -> bool:
        status = (found or {}).get("status") or {}
        last[:] = [one for one in status.get("conditions") or () if one["type"] == type_]
        return any(one["reason"] == reason and words in one["message"] for one in last)

    try:
        await api.until(path, is_so)
    except TimeoutError:
        pytest.fail(f"{path} never said {reason}: {words}, but {last}")


async def goes_on(api: ContractApi, name: str, *, labels: bool = True, status: bool = True) -> None:
    """The rules of a group that need nothing of what is wrong: status, role labels, traffic."""
    path = BROKER_GROUP.path(NAMESPACE, name)
    wish = await api.merge(path, {"spec": {"drain": {"deadlineSeconds": next(_TURNS)}}})
    generation = wish["metadata"]["generation"]
    if status:
        await api.until(path, lambda one: _seen(one) >= generation)
    if labels:
        patch = {"metadata": {"labels": next(_SPOILS[name])}}
        for pod in await _pods_of(api, name):
            await api.merge(POD.path(NAMESPACE, pod["metadata"]["name"]), patch)
        await _until(lambda: _are_labelled(api, name), f"labels of {name}")


def _seen(found: Any) -> int:
    return int((found or {}).get("status", {}).get("observedGeneration", -1))


async def _pods_of(api: ContractApi, name: str) -> list[dict[str, Any]]:
    """Those that stay."""
    selector = names.selector_text(names.BROKER, name)
    listed = await api.get(POD.path(NAMESPACE), labelSelector=selector)
    return [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]


async def _are_labelled(api: ContractApi, name: str) -> bool:
    """One master, and traffic to each pod."""
    labels = [pod["metadata"]["labels"] for pod in await _pods_of(api, name)]
    roles = sorted(str(one.get(names.LABEL_ROLE)) for one in labels)
    traffic = {one.get(names.LABEL_TRAFFIC, names.TRAFFIC_ON) for one in labels}
    return roles[:1] == ["master"] and "spoilt" not in roles and traffic == {names.TRAFFIC_ON}


async def _until(holds: Callable[[], Any], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"never: {what}")


async def both_are_well(api: ContractApi) -> None:
    """Every group is as wished; what was refused a while ago is looked at anew."""
    for name in (VICTIM, NEIGHBOUR):
        await goes_on(api, name, labels=False)
        path = BROKER_GROUP.path(NAMESPACE, name)
        await condition(api, path, "Ready", "AsWished", "")
    await condition(api, CONTROLLER_GROUP.path(NAMESPACE, "gantry"), "Accepted", "Valid", "")
