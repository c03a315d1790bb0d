"""The replica core as a machine whose recorded steps can be taken once more; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.steps.plain import Hollow, raised
from gantry_protocol.steps.replay import CoreKind

from gantry_broker.decisions.dense import BLANK, items
from gantry_broker.decisions.state import PLAIN, core_of, state_of
from gantry_broker.decisions.told import append_told, effects_told

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.types import Offset

    from gantry_broker.replica.core import ReplicaCore
    from gantry_broker.replica.master import Batch

_EVENT_PARTS: Final = 2


class OtherBatchError(Exception):
    """The core would send another range than was sent."""


def _appended(core: ReplicaCore, end: Offset, now_ms: int) -> None:
    core.appended(end, None if now_ms == BLANK else True, now_ms)


def _sent(core: ReplicaCore, link: int, batch: Batch, size: int) -> Any:
    """The message of a batch, which must be the one that the core offers."""
    data: Any = Hollow(size)
    offered = core.next_batch(link)
    message = append_told(core.sent(link, batch, data))
    return message if offered == batch else raised(OtherBatchError(f"offers {offered}"))


INPUTS: Final[dict[str, Callable[[ReplicaCore, Any], Any]]] = {
    "step": lambda core, given: effects_told(core.step(*given)),
    "appended": lambda core, given: _appended(core, *given),
    "sent": lambda core, given: _sent(core, *given),
    "confirm_news": lambda core, _: effects_told(core.confirm_news()),
    "stopped": lambda core, _: effects_told(core.stopped()),
}
"""Every input of a core; what a recorded one is taken by."""


def label(kind: str, given: Any) -> str:
    """The kind of an input and what it is about."""
    parts = given.get("tuple") if isinstance(given, dict) else None
    if kind != "step" or not isinstance(parts, list) or len(parts) != _EVENT_PARTS:
        return kind
    event, now_ms = parts
    if not isinstance(event, dict) or len(event) != 1:
        return kind
    ((name, fields),) = event.items()
    message = fields.get("message") if isinstance(fields, dict) else None
    if isinstance(message, dict) and len(message) == 1:
        name += f" {next(iter(message))} on link {fields.get('link')}"
    return f"{name} at {now_ms} ms"


REPLICA: Final = CoreKind(
    "replica",
    "gantry_broker.replica",
    PLAIN,
    INPUTS,
    lambda stretch, _, place: core_of(stretch, place),
    state_of,
    label,
    items,
)
