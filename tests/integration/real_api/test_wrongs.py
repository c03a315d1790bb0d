"""Wrong manifests and sabotages, by Kubernetes' own API server and beside an operator that runs.

Each is refused with words that help, or answered within seconds by a condition that says what to
do. The operator neither ends nor spins, it does what else is to be done about that group, and other
groups notice nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from gantry_local.defaults import OPERATOR, SYSTEM_NAMESPACE
from gantry_local.state import StateDir
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BY_NAME,
    POD,
    SECRET,
    Kind,
)
from support import wrong_manifests as wrong
from support.admission import Admission, configuration
from support.beside_sabotage import both_are_well, condition, goes_on, is_answered
from support.cli_cluster import CliCluster
from support.contract_api import ContractApi, Refused
from support.sabotage import (
    DELETED_NAMESPACE,
    NAMESPACE,
    NEIGHBOUR,
    SABOTAGES,
    VICTIM,
    Scene,
    group,
)

ANSWERED_WITHIN_S = 5.0
"""On a machine that has a core for each process that wants one."""
CALM_S, CALM_LOOKS, CALM_WITHIN = 0.4, 3, 40
"""A key that failed waits longer each time; a hot loop never has so few looks in such a time."""
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HEARD = ("pods", "services", "statefulsets", "secrets", "brokergroups", "brokergroups/status")


class Told(NamedTuple):
    """The operator's own words about itself."""

    process: str
    looks: float
    spins: float
    bugs: float


class Bench:
    """A cluster with two groups, of which one is sabotaged."""

    def __init__(self, cluster: CliCluster, admission: Admission) -> None:
        self.kubeconfig = cluster.directory / "kubeconfig"
        self.etcd = StateDir(cluster.directory).real / "client:0"
        self.admission = admission


@pytest.fixture(scope="module")
def bench(real: CliCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The groups, with their masters elected, and the webhook in force."""
    spare = {"kind": "ControllerGroup", "metadata": {"name": wrong.SPARE}}
    manifests = [
        spare | {"spec": {"replicas": 1, "paused": True}},
        {"kind": "BrokerGroup", "metadata": {"name": VICTIM}} | group(2),
        {"kind": "BrokerGroup", "metadata": {"name": NEIGHBOUR}} | group(1),
    ]
    with Admission(tmp_path_factory.mktemp("admission")) as admission:
        hook = configuration("wrongs", admission.client, *HEARD, namespace=NAMESPACE)
        made = [{"apiVersion": wrong.VERSION} | one for one in manifests]
        real.gantry_applies(yaml.safe_dump_all([*made, hook]))
        yield Bench(real, admission)


@pytest.fixture
async def api(bench: Bench) -> AsyncIterator[ContractApi]:
    """A client of the API server."""
    async with ContractApi(bench.kubeconfig) as client:
        yield client


# Manifests


@pytest.mark.parametrize("case", wrong.REFUSED)
async def test_a_wrong_manifest_is_refused(api: ContractApi, case: str) -> None:
    manifest = wrong.REFUSED[case]
    with pytest.raises(Refused) as refused:
        await apply(api, manifest.manifest, dryRun="All", fieldValidation="Strict")
    assert refused.value.code in {400, 422, 500}
    assert manifest.words in refused.value.message


@pytest.mark.parametrize("case", wrong.ANSWERED)
async def test_a_wrong_manifest_is_answered(api: ContractApi, case: str) -> None:
    manifest = wrong.ANSWERED[case]
    for body in manifest.before:
        await apply(api, body)
    if manifest.before:
        await asyncio.sleep(1.1)  # who was there before is told by whole seconds
    await apply(api, manifest.manifest)
    before = await told(api)
    wanted = manifest.condition, manifest.reason, manifest.words
    await answered(api, BY_NAME[manifest.kind], manifest.name, *wanted)
    await is_calm(api, before)


async def apply(api: ContractApi, body: dict[str, Any], **query: str) -> None:
    kind, name = BY_NAME[body["kind"]], body["metadata"]["name"]
    path = kind.path(NAMESPACE, name)
    query = {"fieldManager": "one", "force": "true"} | query
    await api.call("PATCH", path, body, kind="application/apply-patch+yaml", **query)


# Sabotages


@pytest.mark.parametrize("case", SABOTAGES)
async def test_a_sabotage_is_answered(bench: Bench, api: ContractApi, case: str) -> None:
    sabotage, scene = SABOTAGES[case], Scene(api, bench.admission, bench.etcd)
    await both_are_well(api)
    before = await told(api)
    async with sabotage.does(scene):
        began = time.monotonic()
        await is_answered(api, sabotage)
        assert time.monotonic() - began < within()
        await goes_on(api, VICTIM, labels=sabotage.labels, status=sabotage.status)
        await goes_on(api, NEIGHBOUR)
        await is_calm(api, before)
    await both_are_well(api)


async def test_a_vanished_secret_comes_back_as_it_was(bench: Bench, api: ContractApi) -> None:
    await both_are_well(api)
    before, path = await told(api), SECRET.path(NAMESPACE, "gantry-quorum-key")
    content = (await api.get(path))["data"]
    uid = (await api.get(path))["metadata"]["uid"]
    await api.delete(path)
    began = time.monotonic()
    found = await api.until(path, lambda one: one is not None and one["metadata"]["uid"] != uid)
    assert time.monotonic() - began < within()
    assert found is not None
    assert found["data"] == content
    await goes_on(api, VICTIM)
    await is_calm(api, before)


async def test_a_namespace_that_is_deleted_is_left_in_peace(bench: Bench, api: ContractApi) -> None:
    await both_are_well(api)
    before = await told(api)
    async with DELETED_NAMESPACE(Scene(api, bench.admission, bench.etcd)):
        path = BROKER_GROUP.path("leaving", "held")
        await condition(api, path, "Progressing", "Deleting", "finalizers of others")
        await goes_on(api, VICTIM)
        await is_calm(api, before)


async def answered(
    api: ContractApi, kind: Kind, name: str, condition_: str, reason: str, words: str
) -> None:
    began = time.monotonic()
    await condition(api, kind.path(NAMESPACE, name), condition_, reason, words)
    assert time.monotonic() - began < within()


def within() -> float:
    """The time in which an answer comes, on this machine as it is now."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return ANSWERED_WITHIN_S * max(1.0, load)


# The operator


async def told(api: ContractApi) -> Told:
    """The operator's process, and its figures."""
    (pod,) = [
        one
        for one in (await api.get(POD.path(SYSTEM_NAMESPACE)))["items"]
        if one["metadata"]["name"].startswith(OPERATOR)
    ]
    url = f"http://{pod['status']['podIP']}:8080/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = [line for line in (await answer.text()).splitlines() if line[:1] != "#"]

    def total(*words: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(w in line for w in words))

    return Told(
        process=pod["status"]["containerStatuses"][0]["containerID"],
        looks=total("gantry_operator_reconciles_total{"),
        spins=total("gantry_operator_reconciles_without_change_total{")
        + total("gantry_operator_repeated_reconciles_total{"),
        bugs=total("gantry_operator_reconciles_total{", 'result="bug"'),
    )


async def is_calm(api: ContractApi, before: Told) -> None:
    """The process is the same one, has met no fault of its own, and does not spin."""
    then = await told(api)
    assert then.process == before.process, "the operator was started again"
    assert then.bugs == before.bugs
    assert then.spins == before.spins
    for _ in range(CALM_WITHIN):
        await asyncio.sleep(CALM_S)
        now = await told(api)
        if now.looks - then.looks <= CALM_LOOKS:
            return
        then = now
    pytest.fail("the operator does not come to rest")
