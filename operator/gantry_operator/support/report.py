"""A support bundle of a namespace: read, put together, and counted; see `bundle` for what is in it.

Bounded in every way: a few requests at a time, so many bytes of each log and of all files. The logs
share what room there is, so a noisy container takes none of another's.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from gantry_protocol.process.probes import DECISIONS_PATH

from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import POD
from gantry_operator.decisions.codec import NotADecisionError
from gantry_operator.decisions.replay import recording_of
from gantry_operator.support.bundle import RAFT, REPLICA, Bundle, Extras, LogText, build
from gantry_operator.support.doctor import as_text, examine_all
from gantry_operator.support.material import AT_ONCE, Material, gather, reason
from gantry_operator.support.pod_logs import ContainerRun, last_bytes, runs_of

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.api.protocol import Body, SupportApi
    from gantry_operator.support.material import Tell

DECISIONS_BYTES: Final = 16 * 1024 * 1024
"""Of one operator's answer."""
STEPS_BYTES: Final = 32 * 1024 * 1024
"""Of the answer of one process; as much as ``recorded_bytes`` may be."""
STEPS_TIMEOUT_S: Final = 30.0
_STEPS: Final = {
    names.CONTROLLER: (RAFT, names.CONTROLLER_HTTP_PORT),
    names.BROKER: (REPLICA, names.BROKER_HTTP_PORT),
}
"""The cores of components; those of the first are read first."""
LOG_BYTES_MIN: Final = 32 * 1024
"""Of one log; where there is room for less, the last ones are left out."""


class Limits(msgspec.Struct, frozen=True):
    """Bounds.

    Attributes:
        log_bytes: of one run of one container.
        total_bytes: of all files, before they are packed.
    """

    log_bytes: int = 1024 * 1024
    total_bytes: int = 32 * 1024 * 1024


async def report(
    api: SupportApi,
    namespace: str,
    tell: Tell,
    *,
    now: dt.datetime,
    version: str,
    operator_namespace: str = "",
    limits: Limits = Limits(),  # noqa: B008 -- frozen
) -> Bundle:
    """The bundle of a namespace.

    Raises:
        GantryError: the API server does not answer.
    """
    material = await gather(api, namespace, tell, operator_namespace=operator_namespace)
    decisions, silent = await _decisions(api, material, tell)
    steps, mute = await _steps(api, material, limits, tell)
    logs, unread = await _logs(api, material, limits, tell)
    findings = as_text(examine_all(material, now))
    extras = Extras(
        taken_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        version=version,
        doctor=findings or "There is no group.\n",
        unread=(*unread, *silent, *mute),
        decisions=decisions,
        steps=steps,
    )
    tell("Redacting")
    return await asyncio.to_thread(build, material, logs, extras, limits.total_bytes)


def shares(runs: list[ContainerRun], limits: Limits) -> tuple[list[ContainerRun], int]:
    """The runs whose logs there is room for, and how many bytes of each; half is for logs."""
    room = limits.total_bytes // 2
    fit = runs[: max(1, room // min(LOG_BYTES_MIN, limits.log_bytes))]
    return fit, min(limits.log_bytes, room // max(1, len(fit)))


async def _decisions(
    api: SupportApi, material: Material, tell: Tell
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The decisions about the namespace, of each operator that has made some."""
    found: dict[str, Any] = {}
    unread: list[tuple[str, str]] = []
    path = f"{DECISIONS_PATH}?namespace={quote(material.namespace, safe='')}"
    for pod in material.objects.get(POD.kind) or ():
        meta = pod["metadata"]
        if (meta.get("labels") or {}).get(names.LABEL_COMPONENT) != names.OPERATOR:
            continue
        what = f"decisions of {meta['namespace']}/{meta['name']}"
        tell(f"Reading the {what}")
        try:
            port = _port(pod, names.OPERATOR, names.OPERATOR_HTTP_PORT)
            data = await api.ask_port(
                meta["namespace"], meta["name"], port, path, bytes_max=DECISIONS_BYTES
            )
            told = recording_of(data, what)
        except ApiError as error:
            unread.append((what, reason(error)))
        except NotADecisionError as error:
            unread.append((what, str(error)))
        else:
            if told.decisions:
                found[meta["name"]] = json.loads(data)
    return found, unread


async def _steps(
    api: SupportApi, material: Material, limits: Limits, tell: Tell
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The steps of the cores of the namespace's processes, by their files, as these gave them.

    Once they take as much as a bundle has room for, the rest is left out.
    """
    asked = [
        (component, pod)
        for component in _STEPS
        for pod in material.objects.get(POD.kind) or ()
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == component
        and pod["metadata"]["namespace"] == material.namespace
    ]
    found: dict[str, str] = {}
    unread: list[tuple[str, str]] = []
    for first in range(0, len(asked), AT_ONCE):
        some = asked[first : first + AT_ONCE]
        if sum(map(len, found.values())) >= limits.total_bytes // 2:
            unread += [(_steps_of(pod), "there are too many steps") for _, pod in some]
            continue
        tell(f"Reading the {_steps_of(some[0][1])}" + (" and others" if len(some) > 1 else ""))
        answers = await asyncio.gather(*(_steps_in(api, pod, part) for part, pod in some))
        for (component, pod), answer in zip(some, answers, strict=True):
            core, name = _STEPS[component][0], pod["metadata"]["name"]
            if isinstance(answer, str):
                unread.append((_steps_of(pod), answer))
            elif _core(answer) != core:
                why = "the answer holds no steps; the process may be an older one"
                unread.append((_steps_of(pod), why))
            else:
                found[f"{core}/{name}"] = answer.decode("utf-8", "replace")
    return found, unread


def _steps_of(pod: Body) -> str:
    return f"steps of {pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _steps_in(api: SupportApi, pod: Body, component: str) -> bytes | str:
    """The answer of a process, or why there is none."""
    meta, port = pod["metadata"], _port(pod, component, _STEPS[component][1])
    try:
        async with asyncio.timeout(STEPS_TIMEOUT_S):
            return await api.ask_port(
                meta["namespace"], meta["name"], port, DECISIONS_PATH, bytes_max=STEPS_BYTES
            )
    except ApiError as error:
        return reason(error)
    except TimeoutError:
        return f"no answer within {STEPS_TIMEOUT_S:.0f} s"


def _core(data: bytes) -> object:
    """The kind of core whose steps these are; None if they are none."""
    try:
        heading = json.loads(data.partition(b"\n")[0])
    except ValueError:
        return None
    return heading.get("core") if isinstance(heading, dict) else None


def _port(pod: Body, component: str, otherwise: int) -> int:
    """The HTTP port of a component."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if (container.get("name"), port.get("name")) == (component, "http"):
                return int(port["containerPort"])
    return otherwise


async def _logs(
    api: SupportApi, material: Material, limits: Limits, tell: Tell
) -> tuple[list[LogText], list[tuple[str, str]]]:
    runs = [run for pod in material.objects.get(POD.kind) or () for run in runs_of(pod)]
    runs.sort(key=lambda run: (run.previous, run))
    fit, share = shares(runs, limits)
    material.cut += [f"{run}: left out, since there are too many logs" for run in runs[len(fit) :]]
    found: list[LogText] = []
    unread: list[tuple[str, str]] = []
    turn = asyncio.Semaphore(AT_ONCE)

    async def read(run: ContainerRun) -> None:
        async with turn:
            tell(f"Reading the {run}")
            try:
                found.append(await last_bytes(api, run, share))
            except ApiError as error:
                unread.append((str(run), reason(error)))

    async with asyncio.TaskGroup() as tasks:
        for run in fit:
            tasks.create_task(read(run))
    return found, unread
