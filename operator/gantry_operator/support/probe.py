"""The probe of running groups: metrics of their pods, read twice, and one message to each group.

Everything goes through the API server's port forwarding, with a person's right to it: no address of
a pod, no exec, no token. Pods are asked a few at a time, each answer is bounded in size and time,
and so is the number of pods and groups. A pod that does not answer is a finding, and ends nothing.

One message goes to each broker group: through the door of a replica if there are doors, which is
the way of a client whom a Service led to a wrong pod, and to the master's port otherwise.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gantry_operator import names
from gantry_operator.api.errors import ApiError, Denied
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, Kind
from gantry_operator.support import checks_probe
from gantry_operator.support.findings import Case, Diagnosis
from gantry_operator.support.material import AT_ONCE, reason
from gantry_operator.support.round_trip import ShownIdentity, round_trip
from gantry_operator.support.sync_figures import Buckets, buckets_of, figure

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from gantry_operator.api.protocol import Body, SupportApi
    from gantry_operator.support.material import Material, Tell

METRICS_BYTES: Final = 16 * 1024 * 1024
ASK_TIMEOUT_S: Final = 10.0
SEND_TIMEOUT_S: Final = 30.0
PODS_MAX: Final = 256
SENDS_MAX: Final = 64
SYNCS: Final = {
    names.BROKER: "gantry_broker_disk_sync_seconds",
    names.CONTROLLER: "gantry_controller_disk_sync_seconds",
}
_HTTP: Final = {names.BROKER: names.BROKER_HTTP_PORT, names.CONTROLLER: names.CONTROLLER_HTTP_PORT}


class ProbeWanted(msgspec.Struct, frozen=True):
    """A probe as it is asked for.

    Attributes:
        window_s: between the two readings.
        who: the client that sends.
    """

    window_s: float = 10.0
    who: ShownIdentity = msgspec.field(default_factory=ShownIdentity)


class DiskOf(NamedTuple):
    """A pod with a disk to be measured."""

    pod: str
    component: str
    port: int


class SendTo(NamedTuple):
    """A broker group that gets a message, and the pod and the port that take it; no pod: none."""

    group: str
    pod: str
    port: int
    via: str


class ProbePlan(msgspec.Struct):
    """Pods and groups that are to be asked, and findings without asking."""

    disks: list[DiskOf] = []
    sends: list[SendTo] = []
    known: list[Diagnosis] = []


def planned(material: Material, only: tuple[Kind, Body] | None, now: dt.datetime) -> ProbePlan:
    """The probe of a group and its quorum; of all groups if none is named."""
    plan = ProbePlan([], [], [])
    for case in _cases(material, only, now):
        if case.asleep:
            plan.known.append(checks_probe.asleep(case.called))
            continue
        component = names.BROKER if case.kind == BROKER_GROUP else names.CONTROLLER
        for pod in sorted(case.pods(), key=_name):
            if _is_running(pod, component):
                port = _port(pod, component, "http", _HTTP[component])
                plan.disks.append(DiskOf(_name(pod), component, port))
            else:
                plan.known.append(
                    checks_probe.unmeasured(_name(pod), f"its container {component} does not run")
                )
        if case.kind == BROKER_GROUP:
            for one in _sends(case):
                if one.pod:
                    plan.sends.append(one)
                else:
                    plan.known.append(checks_probe.nowhere(one.group))
    if len(plan.sends) > SENDS_MAX:
        plan.known.append(checks_probe.left_out(len(plan.sends) - SENDS_MAX, SENDS_MAX))
        del plan.sends[SENDS_MAX:]
    for disk in plan.disks[PODS_MAX:]:
        plan.known.append(checks_probe.unmeasured(disk.pod, f"{PODS_MAX} pods are at most"))
    del plan.disks[PODS_MAX:]
    return plan


async def probe(
    api: SupportApi, namespace: str, plan: ProbePlan, wanted: ProbeWanted, tell: Tell
) -> list[Diagnosis]:
    """The findings of a probe; a cancellation leaves at most the messages that were sent.

    The messages go between the two readings, so that an idle group's disks have something to do.
    """
    asking = _Asking(api, namespace)
    tell(f"Reading the metrics of {len(plan.disks)} pods")
    first = await asking.histograms(plan.disks)
    sent: list[Diagnosis] = []
    for one in plan.sends:
        tell(f"Sending one message to {one.group} through {one.via}")
        sent.append(await asking.send(one, wanted.who))
    tell(f"Waiting for {wanted.window_s:g} s")
    await asyncio.sleep(wanted.window_s)
    second = await asking.histograms(plan.disks)
    found = [*plan.known]
    for disk in plan.disks:
        earlier, later = first[disk], second[disk]
        if isinstance(later, Buckets):
            before = earlier if isinstance(earlier, Buckets) else None
            found.append(checks_probe.syncs(disk.pod, figure(before, later), wanted.window_s))
        else:
            found.append(later)
    found += sent
    return list(dict.fromkeys(found))


class _Asking:
    def __init__(self, api: SupportApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def histograms(self, disks: Sequence[DiskOf]) -> dict[DiskOf, Buckets | Diagnosis]:
        """The histogram of each pod, or why there is none."""
        found: dict[DiskOf, Buckets | Diagnosis] = {}

        async def read(disk: DiskOf) -> None:
            async with self._turn:
                found[disk] = await self._histogram(disk)

        async with asyncio.TaskGroup() as tasks:
            for disk in disks:
                tasks.create_task(read(disk))
        return found

    async def _histogram(self, disk: DiskOf) -> Buckets | Diagnosis:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                page = await self._api.ask_port(
                    self._namespace, disk.pod, disk.port, "/metrics", bytes_max=METRICS_BYTES
                )
        except Denied as error:
            return checks_probe.denied(f"{error.status} {error.reason}")
        except ApiError as error:
            return checks_probe.unmeasured(disk.pod, reason(error))
        except TimeoutError:
            return checks_probe.unmeasured(disk.pod, f"no metrics within {ASK_TIMEOUT_S:.0f} s")
        found = buckets_of(page.decode("utf-8", "replace"), SYNCS[disk.component])
        return checks_probe.older(disk.pod) if found is None else found

    async def send(self, to: SendTo, who: ShownIdentity) -> Diagnosis:
        """The finding about a message to a broker group."""
        try:
            async with (
                asyncio.timeout(SEND_TIMEOUT_S),
                self._api.pass_to_port(self._namespace, to.pod, to.port) as way,
            ):
                found = await round_trip(way.near, to.group, who)
                if found.read_s is None and way.problem is not None:
                    raise way.problem
        except Denied as error:
            return checks_probe.denied(f"{error.status} {error.reason}")
        except ApiError as error:
            return checks_probe.unreachable(to.group, to.via, reason(error))
        except TimeoutError:
            why = f"nothing was heard within {SEND_TIMEOUT_S:.0f} s"
            return checks_probe.unreachable(to.group, to.via, why)
        return checks_probe.trip(to.group, to.via, found)


def _cases(material: Material, only: tuple[Kind, Body] | None, now: dt.datetime) -> list[Case]:
    """The groups to be probed: the one that is meant, and its quorum; or all."""
    cases = [
        Case(material, kind, body, now)
        for kind in (BROKER_GROUP, CONTROLLER_GROUP)
        for body in material.of(kind)
    ]
    if only is None:
        return cases
    meant = Case(material, *only, now)
    return [
        case
        for case in cases
        if (case.kind, case.name) == (meant.kind, meant.name)
        or (case.kind == CONTROLLER_GROUP and case.name == meant.cluster)
    ]


def _sends(case: Case) -> list[SendTo]:
    """The destination of a message to each broker group of a resource."""
    pods = [pod for pod in sorted(case.pods(), key=_name) if _is_ready(pod)]
    shards = int(case.spec.get("shards") or 0)
    if shards:
        return [
            SendTo(name, _name(pods[0]), port, f"{_name(pods[0])}, port {port}")
            if pods
            else SendTo(name, "", 0, "")
            for name in (names.shard(case.name, index) for index in range(shards))
            for port in (names.shard_port(name),)
        ]
    masters = [pod for pod in pods if _role(pod) == names.ROLE_MASTER]
    doors = [pod for pod in pods if _has_container(pod, names.DOOR)]
    others = [pod for pod in doors if pod not in masters]
    for pod in (others or doors) if masters else []:
        port = _port(pod, names.DOOR, "remoting", names.DOOR_PORT)
        return [SendTo(case.name, _name(pod), port, f"the door of {_name(pod)}")]
    for pod in masters:
        port = _port(pod, names.BROKER, "remoting", names.BROKER_REMOTING_PORT)
        return [SendTo(case.name, _name(pod), port, _name(pod))]
    return [SendTo(case.name, "", 0, "")]


def _name(pod: Body) -> str:
    return str(pod["metadata"]["name"])


def _role(pod: Body) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_ROLE) or "")


def _is_ready(pod: Body) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _containers(pod: Body) -> list[Body]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _has_container(pod: Body, name: str) -> bool:
    return any(one.get("name") == name for one in _containers(pod))


def _is_running(pod: Body, container: str) -> bool:
    status = pod.get("status") or {}
    states = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return any(
        one.get("name") == container and "running" in (one.get("state") or {}) for one in states
    )


def _port(pod: Body, container: str, name: str, default: int) -> int:
    """A container's port of a name."""
    for one in _containers(pod):
        for port in one.get("ports") or () if one.get("name") == container else ():
            if port.get("name") == name:
                return int(port["containerPort"])
    return default
