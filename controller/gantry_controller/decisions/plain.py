"""Values of the Raft core as plain data, and back; pure.

Plain is what JSON knows. A value of a class is an object with one key, the name of the class; so
are tuples, queues and mappings, since JSON has none. Only the classes of the core's own modules are
ever made from a file. Not written are what belongs to the process (``SKIPPED``), and callers that
wait for a read (``HELD``): of those the number is all that the core's decisions rest on.
"""

from __future__ import annotations

import enum
import inspect
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gantry_protocol.errors import GantryError

from gantry_controller.decisions import told
from gantry_controller.raft import (
    config,
    digests,
    follower_reads,
    lease,
    log,
    members,
    messages,
    progress,
    reads,
    ready,
    snapshot,
    state,
)

if TYPE_CHECKING:
    from types import ModuleType

_MODULES: Final[tuple[ModuleType, ...]] = (
    config, digests, follower_reads, lease, log, members, messages, progress, reads, ready,
    snapshot, state, told,
)  # fmt: skip
CLASSES: Final = {
    name: found
    for module in _MODULES
    for name, found in vars(module).items()
    if inspect.isclass(found) and found.__module__ == module.__name__
}
"""Every class that may stand in a file."""
SKIPPED: Final = frozenset({"rng", "tracer", "config", "_entries", "_state"})
"""Attributes that are written elsewhere, or are the process's own."""
HELD: Final = frozenset({"contexts", "_waiting", "reads_dropped", "reads_redirected"})
HELD_MAX: Final = 10_000_000
SHOWN_CHARS: Final = 120


class NotStepsError(GantryError):
    """Data that is no recording of steps, or not of this version; the text says where and what."""


def written(value: Any) -> Any:
    """A value as plain data.

    Raises:
        TypeError: it is none of the core's.
    """
    kind = type(value)
    if value is None or kind in (int, str, bool):
        return value
    if kind is list:
        return [written(one) for one in value]
    if kind is tuple:
        return {"tuple": [written(one) for one in value]}
    if kind is deque:
        return {"deque": [written(one) for one in value]}
    if kind is dict:
        return {"map": [[written(key), written(one)] for key, one in value.items()]}
    if kind is array:
        return {"sizes": value.tolist()}
    if CLASSES.get(kind.__name__) is not kind:
        raise TypeError(f"{kind.__name__} is no value of the core")
    if isinstance(value, enum.Enum):
        return {kind.__name__: value.value}
    fields = {name: _field(name, getattr(value, name)) for name in names_of(value)}
    if kind is told.ReadyTold:
        fields = {name: one for name, one in fields.items() if one not in (None, [], 0)}
    return {kind.__name__: fields}


def _field(name: str, value: Any) -> Any:
    return {"held": len(value)} if name in HELD else written(value)


def names_of(value: Any) -> list[str]:
    """The attributes of an object that are written, in their order."""
    if isinstance(value, msgspec.Struct):
        names: Any = value.__struct_fields__
    else:
        names = getattr(type(value), "__slots__", None) or vars(value)
    return [name for name in names if name not in SKIPPED]


def read(data: Any, place: str) -> Any:
    """The value that plain data stands for.

    Raises:
        NotStepsError: it is none.
    """
    if isinstance(data, list):
        return [read(one, place) for one in data]
    if not isinstance(data, dict):
        if data is None or isinstance(data, (int, str)):
            return data
        raise NotStepsError(f"{place}: {shown(data)} is no value of the core.")
    if len(data) != 1:
        raise NotStepsError(f"{place}: {shown(data)} names no class.")
    ((name, inner),) = data.items()
    try:
        return _made(name, inner, place)
    except (TypeError, ValueError, OverflowError, GantryError) as error:
        if isinstance(error, NotStepsError):
            raise
        why = str(error).rstrip(".")
        raise NotStepsError(f"{place}: this is no {shown(name)}: {why}.") from None


def _made(name: str, inner: Any, place: str) -> Any:
    match name:
        case "tuple":
            return tuple(read(one, place) for one in inner)
        case "deque":
            return deque(read(one, place) for one in inner)
        case "map":
            return {read(key, place): read(one, place) for key, one in inner}
        case "sizes":
            return array("I", inner)
        case "held":
            if not isinstance(inner, int) or not 0 <= inner <= HELD_MAX:
                raise NotStepsError(f"{place}: {shown(inner)} callers cannot wait.")
            return [None] * inner
    return _made_of_class(name, inner, place)


def _made_of_class(name: str, inner: Any, place: str) -> Any:
    kind = CLASSES.get(name)
    if kind is None:
        raise NotStepsError(f"{place}: this version knows no {shown(name)}.")
    if issubclass(kind, enum.Enum):
        return kind(inner)
    if not isinstance(inner, dict):
        raise NotStepsError(f"{place}: {shown(inner)} is no {name}.")
    fields = {key: read(one, f"{place}.{key}") for key, one in inner.items()}
    if issubclass(kind, msgspec.Struct):
        return kind(**fields)
    slots = getattr(kind, "__slots__", None)
    if slots is not None and set(fields) != set(slots) - SKIPPED:
        raise NotStepsError(f"{place}: a {name} of another version: use the one that recorded it.")
    made = kind.__new__(kind)
    for key, one in fields.items():
        setattr(made, key, one)
    return made


def shown(value: object) -> str:
    """A value as far as it fits into a sentence."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
