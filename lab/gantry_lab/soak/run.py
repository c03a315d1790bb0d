"""A soak as a process: opens its parts, serves or prints, and ends with an account."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import msgspec
from gantry_cli.admin import AdminClient
from gantry_cli.client.session import session
from gantry_cli.trial.load import Load, LoadPace
from gantry_cli.trial.observer import Observer
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log

from gantry_lab.soak.api import server
from gantry_lab.soak.commits import Commits
from gantry_lab.soak.recording import recording
from gantry_lab.soak.soak import Soak
from gantry_lab.soak.views import SoakOutcome, line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gantry_cli.target import Admin

STEP_S = 1.0
KEEP_MESSAGES = 200_000  # about 100 MB; at 400 messages a second the last eight minutes
KEEP_TIMES = 1_000_000

_log = log.get("soak")


class Plan(msgspec.Struct, frozen=True):
    """The plan of a soak.

    Attributes:
        name_servers: whom to ask for routes.
        topic: where to send.
        pace: how much is sent.
        queues: of the topic.
        duration_s: None: until told to stop.
        patience_s: for the last messages, at the end.
        metadata: commit topic changes all the time.
        admin: the controllers; None: nobody is watched.
        group: what is watched there.
        http: host and port; None: no HTTP.
        record: keep a history, to be fetched over HTTP.
    """

    name_servers: tuple[str, ...]
    topic: str
    pace: LoadPace
    queues: int
    duration_s: float | None
    patience_s: float
    metadata: bool
    admin: Admin | None
    group: str | None
    http: tuple[str, int] | None
    record: bool = False


async def run(plan: Plan, stop: asyncio.Event, show: Callable[[str], None] | None) -> SoakOutcome:
    """Soak until `stop`, the plan's end, or, with nobody to ask for it, a break of the soak itself.

    Args:
        plan: what is to be done.
        stop: ends it in order.
        show: told a line every second; None: nobody looks.
    """
    async with AsyncExitStack() as stack:
        soak = await open_soak(plan, stack)
        if plan.http is not None:
            http = server(soak)
            host, port = plan.http
            port = await http.start(host, port)
            stack.push_async_callback(http.stop)
            _log.info("serving", http=join_address(host, port))
        await stack.enter_async_context(soak)  # nothing is sent before the port is known to be free
        end_s = None if plan.duration_s is None else time.monotonic() + plan.duration_s
        while not stop.is_set() and (plan.http is not None or soak.error is None):
            left_s = STEP_S if end_s is None else end_s - time.monotonic()
            if left_s <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(STEP_S, left_s))
            if show is not None:
                show(line(soak.state(), soak.longest_gap_ms))
        return await soak.finish(plan.patience_s)


async def open_soak(plan: Plan, stack: AsyncExitStack) -> Soak:
    """The parts of a soak, open, and the soak around them, not started yet."""
    commits = observer = kept = None
    if plan.record:
        kept = recording(plan.admin, plan.group)
        if kept.witness is not None:
            await stack.enter_async_context(kept.witness)
    if plan.admin is not None and plan.group is not None:
        admin = await stack.enter_async_context(
            AdminClient(plan.admin.controllers, plan.admin.token)
        )
        observer = await stack.enter_async_context(
            Observer(admin, plan.group, lambda what: _log.info("group", what=what), _no_pods)
        )
    load = await stack.enter_async_context(
        Load(
            plan.name_servers,
            plan.topic,
            pace=plan.pace,
            queues=plan.queues,
            keep_messages=KEEP_MESSAGES,
            keep_times=KEEP_TIMES,
            history=None if kept is None else kept.messages,
        )
    )
    if plan.metadata:
        client = await stack.enter_async_context(session(plan.name_servers))
        commits = await stack.enter_async_context(
            Commits(
                client,
                f"{plan.topic}-commits",
                keep_times=KEEP_TIMES,
                write=None if kept is None else kept.records.line,
            )
        )
    return Soak(load, commits=commits, observer=observer, recording=kept)


async def _no_pods() -> Mapping[str, str]:
    """Pods are told by uid: a soak has no access to the API server."""
    return {}
