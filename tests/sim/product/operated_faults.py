"""What goes wrong around the operator, and what people ask for meanwhile.

Faults of the API server are shares of its answers and manners of its watches (``kube.Unkindness``);
they end with ``for_ms``. People's wishes last: a rolling update that began goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.kernel.world import MS
from sim.product import kube
from sim.product.cluster import CLUSTER, GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.cluster import Node
    from sim.product.faults import Fault
    from sim.product.operated import OperatedCluster

NAMESPACE = "mq"
REPLICAS_MIN, REPLICAS_MAX = 3, 4
QUORUMS = (3, 5)


def _for_a_while(cluster: OperatedCluster, fault: Fault, **manners: Any) -> None:
    unkind, before = cluster.unkind, {}
    for name, value in manners.items():
        before[name] = getattr(unkind, name)
        setattr(unkind, name, value)

    def end() -> None:
        if not cluster.is_at_peace:
            for name, value in before.items():
                setattr(unkind, name, value)

    cluster.world.after(fault.for_ms * MS, end)


def _refuses(reason: str) -> Callable[[OperatedCluster, Fault], None]:
    def strike(cluster: OperatedCluster, fault: Fault) -> None:
        share = (0.1, 0.5, 1.0)[fault.target % 3]
        _for_a_while(cluster, fault, refusals={reason: share})

    return strike


def _lost_answers(cluster: OperatedCluster, fault: Fault) -> None:
    _for_a_while(cluster, fault, lost_answers=(0.1, 0.5)[fault.target % 2])


def _slow(cluster: OperatedCluster, fault: Fault) -> None:
    _for_a_while(cluster, fault, slow_us=(100, 1_000)[fault.target % 2] * MS)


def _lag(cluster: OperatedCluster, fault: Fault) -> None:
    _for_a_while(cluster, fault, lag_us=(200, 3_000)[fault.target % 2] * MS)


def _silent(cluster: OperatedCluster, fault: Fault) -> None:
    _for_a_while(cluster, fault, is_silent=True)


def _cut(cluster: OperatedCluster, _: Fault) -> None:
    cluster.unkind.cut_watches()


def _frozen(cluster: OperatedCluster, _: Fault) -> None:
    cluster.unkind.freeze_watches()


def _forget(cluster: OperatedCluster, _: Fault) -> None:
    """The history is gone, and every watch with it: what comes back is answered 410."""
    assert cluster.registry is not None
    store = cluster.registry.store
    store._history.clear()
    store.compacted = store.revision
    cluster.unkind.cut_watches()


# ---- the operator itself


def _operator(cluster: OperatedCluster, fault: Fault) -> Node:
    return cluster.operators[fault.target % len(cluster.operators)]


def _kill(cluster: OperatedCluster, fault: Fault) -> None:
    node = _operator(cluster, fault)
    node.kill()
    cluster.world.after(fault.for_ms * MS, node.boot)


def _terminate(cluster: OperatedCluster, fault: Fault) -> None:
    _operator(cluster, fault).terminate()


def _freeze(cluster: OperatedCluster, fault: Fault) -> None:
    process = _operator(cluster, fault).process
    if process is not None and not process.is_dead and not process.frozen:
        process.freeze()
        cluster.world.after(fault.for_ms * MS, process.thaw)


def _isolate(cluster: OperatedCluster, fault: Fault) -> None:
    cluster.network.isolate(_operator(cluster, fault).machine.address)
    cluster.world.after(fault.for_ms * MS, cluster.network.heal)


def _off_api(cluster: OperatedCluster, fault: Fault) -> None:
    here = _operator(cluster, fault).machine.address
    cut = {(here, kube.KUBE), (kube.KUBE, here)}
    cluster.network.blocked |= cut
    cluster.world.after(fault.for_ms * MS, cluster.network.blocked.difference_update, cut)


# ---- people


def _roll(plural: str, name: str) -> Callable[[OperatedCluster, Fault], None]:
    def strike(cluster: OperatedCluster, fault: Fault) -> None:
        annotations = {"roll": f"at-{fault.at_ms}"}
        template = {"metadata": {"annotations": annotations}}
        cluster.change(plural, name, {"spec": {"template": template}})

    return strike


def _grow(cluster: OperatedCluster, _: Fault) -> None:
    if cluster.replicas < REPLICAS_MAX:
        cluster.replicas += 1
        cluster.change("brokergroups", GROUP, {"spec": {"replicas": cluster.replicas}})


def _shrink(cluster: OperatedCluster, _: Fault) -> None:
    if cluster.replicas > REPLICAS_MIN:
        cluster.replicas -= 1
        cluster.change("brokergroups", GROUP, {"spec": {"replicas": cluster.replicas}})


def _resize_quorum(cluster: OperatedCluster, _: Fault) -> None:
    cluster.resize_quorum(sum(QUORUMS) - cluster.quorum)


def _switchover(cluster: OperatedCluster, fault: Fault) -> None:
    wish: dict[str, Any] = {"id": f"at-{fault.at_ms}"}
    if fault.target % 2:
        wish["to"] = fault.target // 2 % cluster.replicas
    cluster.change("brokergroups", GROUP, {"spec": {"switchover": wish}})


def _delete_pod(cluster: OperatedCluster, fault: Fault) -> None:
    """Somebody's ``kubectl delete pod``."""
    pods = cluster.objects("pods") if cluster.registry is not None else []
    if pods:
        cluster.delete_pod(pods[fault.target % len(pods)]["metadata"]["name"])


API_FAULTS: dict[str, Callable[[Any, Fault], None]] = {
    "api-conflict": _refuses("conflict"),
    "api-busy": _refuses("busy"),
    "api-broken": _refuses("broken"),
    "api-lost-answers": _lost_answers,
    "api-slow": _slow,
    "api-lag": _lag,
    "api-silent": _silent,
    "api-cut": _cut,
    "api-frozen": _frozen,
    "api-forget": _forget,
}
OPERATOR_FAULTS: dict[str, Callable[[Any, Fault], None]] = {
    "operator-kill": _kill,
    "operator-terminate": _terminate,
    "operator-freeze": _freeze,
    "operator-isolate": _isolate,
    "operator-off-api": _off_api,
}
WISHES: dict[str, Callable[[Any, Fault], None]] = {
    "roll-brokers": _roll("brokergroups", GROUP),
    "roll-controllers": _roll("controllergroups", CLUSTER),
    "grow": _grow,
    "shrink": _shrink,
    "quorum-size": _resize_quorum,
    "switchover": _switchover,
    "delete-pod": _delete_pod,
}
KINDS = {**API_FAULTS, **OPERATOR_FAULTS, **WISHES}
