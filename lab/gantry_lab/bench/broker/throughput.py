"""Messages per second in and out, their latency, and whose CPU they cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.filling import fill
from gantry_lab.bench.broker.load import Load, Window
from gantry_lab.bench.broker.work import Pulls, Sends
from gantry_lab.bench.senders import BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

    from gantry_lab.bench.broker.load import Work
    from gantry_lab.bench.broker.target import Target, Used
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

SENDERS = 64
READERS = 16
BATCH = 32
TOPIC = "gantry-bench"


async def sends(target: Target, plan: Plan, *, batch: int = 1) -> Runs:
    """Messages of 1 KiB by 64 clients, one request outstanding each."""
    queues = await target.queues(TOPIC)
    return await measure(target, plan, Sends(TOPIC, queues, SENDERS, batch), queues, SENDERS)


async def pulls(target: Target, plan: Plan, client: Session, log_bytes: int) -> Runs:
    """Pulls of what was just written, by 16 consumers, each again and again."""
    queues = await target.queues(TOPIC)
    await fill(client, TOPIC, log_bytes, lambda _: None)
    work = Pulls(TOPIC, queues, READERS, once=False)
    return await measure(target, plan, work, queues, READERS)


async def measure(
    target: Target, plan: Plan, work: Work, queues: Sequence[Queue], lanes: int
) -> Runs:
    """The figures of each run, by metric."""
    load = Load(work, [queues[lane % len(queues)].address for lane in range(lanes)], lanes)
    try:
        return await plan.repeat(partial(window, target, load, plan))
    finally:
        load.close()


async def window(target: Target, load: Load, plan: Plan) -> dict[str, float]:
    """The figures of one run of `load`, by metric."""
    used: list[Used | None] = []
    seen = await load.window(plan.warmup_s, plan.seconds, lambda: used.append(target.cpu_s()))
    return figures(seen, used)


async def reading(target: Target, load: Load, patience_s: float) -> tuple[Window, dict[str, float]]:
    """Let `load` work until it has nothing left to do: what was seen, and its figures."""
    used: list[Used | None] = []
    seen = await load.finish(patience_s, lambda: used.append(target.cpu_s()))
    return seen, figures(seen, used)


def figures(seen: Window, used: Sequence[Used | None]) -> dict[str, float]:
    """The figures of one window; `used` as of its beginning and its end.

    Raises:
        GantryError: there are too few answers to speak of.
    """
    if not seen.messages:
        raise GantryError("No request was answered; measure longer with --seconds.")
    per_message = 1e6 / seen.messages
    found = {
        "messages_per_s": seen.messages / seen.seconds,
        "p50_ms": seen.p_ms(0.5),
        "p99_ms": seen.p_ms(0.99),
        "generator_cpu_us": seen.generator_s * per_message,
        "refused_percent": 100 * seen.refused / (seen.operations + seen.refused),
    }
    if seen.received_bytes > seen.messages * BODY_BYTES:
        found["mb_per_s"] = seen.received_bytes / seen.seconds / 1e6
    before, after = used
    if before is not None and after is not None:
        found["master_cpu_us"] = (after.master_s - before.master_s) * per_message
        found["replicas_cpu_us"] = (after.replicas_s - before.replicas_s) * per_message
    return found
