"""Operations: requests joined with their responses, and the faults between them. Pure.

The rule protected here: a client does one thing at a time and is answered after it asked; a history
that says otherwise is refused, since every checker relies on it. A request that was never answered
is UNKNOWN and may have taken effect at any time since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import GantryError

from gantry_chaos.history.lines import FaultMark, Outcome, Request, Response, pairs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gantry_chaos.history.lines import Line

DELIVERIES = ("dequeue",)  # told by a consumer's callback: there is no request


class Operation(msgspec.Struct, frozen=True):
    """One operation of one client.

    Attributes:
        value: what was asked for or answered; the response's if it has one.
        called_ms: when it was asked.
        returned_ms: when it was answered; None: never.
        extra: of the response.
    """

    client: str
    op: str
    outcome: Outcome
    value: str | None
    key: str | None
    called_ms: int
    returned_ms: int | None
    extra: dict[str, str]
    e2e_ms: int = -1


class Window(msgspec.Struct, frozen=True):
    """A fault from its beginning to its end; None: it lasted to the end of the history."""

    name: str
    start_ms: int
    end_ms: int | None


class History(msgspec.Struct, frozen=True):
    """Operations in the order of their calls, and faults in the order of their beginnings."""

    operations: tuple[Operation, ...]
    faults: tuple[Window, ...]


def history(lines: Iterable[Line], source: Path | str) -> History:
    """Join requests and responses.

    Args:
        lines: in the order in which they were written; clients may be mixed.
        source: how errors call the history.

    Raises:
        GantryError: the lines contradict each other.
    """
    waiting: dict[str, Request] = {}
    operations: list[Operation] = []
    starts: dict[str, int] = {}
    faults: list[Window] = []
    for number, line in enumerate(lines, 1):
        match line:
            case Request(client=client):
                if client in waiting:
                    raise _contradiction(source, number, f"{client} asks while it waits")
                waiting[client] = line
            case Response(client=client, op=op) if op in DELIVERIES and client not in waiting:
                request = Request(client, op, None, line.key, line.at_ms)
                operations.append(_joined(request, line))
            case Response(client=client):
                asked = waiting.pop(client, None)
                if asked is None or asked.op != line.op:
                    raise _contradiction(source, number, f"{client} did not ask this")
                if line.at_ms < asked.at_ms:
                    raise _contradiction(source, number, f"{client} was answered too early")
                operations.append(_joined(asked, line))
            case FaultMark(name=name, edge="start"):
                if name in starts:
                    raise _contradiction(source, number, f"{name} begins twice")
                starts[name] = line.at_ms
            case FaultMark(name=name):
                if name not in starts:
                    raise _contradiction(source, number, f"{name} ends and never began")
                faults.append(Window(name, starts.pop(name), line.at_ms))
    operations += [_joined(request, None) for request in waiting.values()]
    faults += [Window(name, start_ms, None) for name, start_ms in starts.items()]
    return History(
        tuple(sorted(operations, key=lambda item: item.called_ms)),
        tuple(sorted(faults, key=lambda item: item.start_ms)),
    )


def _contradiction(source: Path | str, number: int, what: str) -> GantryError:
    return GantryError(f"Line {number} of {source} contradicts those before it: {what}.")


def _joined(request: Request, response: Response | None) -> Operation:
    answer = response or Response(
        request.client, request.op, "UNKNOWN", None, None, request.at_ms, 0
    )
    return Operation(
        client=request.client,
        op=request.op,
        outcome=answer.outcome,
        value=request.value if answer.value is None else answer.value,
        key=request.key,
        called_ms=request.at_ms,
        returned_ms=None if response is None else response.at_ms,
        extra=pairs(request.extra) | pairs(answer.extra),
        e2e_ms=answer.e2e_ms,
    )
