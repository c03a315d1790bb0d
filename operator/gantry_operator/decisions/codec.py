"""Observations and actions as plain data, and back; pure.

The form follows the types of the fields: what the planner is given is all that is written down, and
what is read back is checked against the same types, so that a file from anywhere becomes either an
observation or a `NotADecisionError`. Objects of Kubernetes stay as the API server gave them.

A field that a later version has gets its default; one that this version does not have is an error,
since a decision that rests on it cannot be made again here.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import inspect
import types
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import gantry_protocol.admin
import gantry_protocol.admin_topics
import msgspec
from gantry_protocol.admin_client import outcomes
from gantry_protocol.errors import GantryError
from pydantic import BaseModel, ValidationError

import gantry_operator.models
import gantry_operator.models.base
import gantry_operator.models.consumer_group
import gantry_operator.models.entity
import gantry_operator.models.message_user
import gantry_operator.models.topic
import gantry_operator.plan.actions
import gantry_operator.plan.crashes
import gantry_operator.plan.entities
import gantry_operator.plan.observed
import gantry_operator.plan.offset_resets
import gantry_operator.plan.turns
from gantry_operator.models.base import ConditionStatus
from gantry_operator.plan.actions import Action
from gantry_operator.plan.entities import EntityObserved
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    ControllerObserved,
    FrontObserved,
    Observed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Seen = Observed | EntityObserved
FORMAT: Final = 1
"""Of the whole file; another one is read by the version that wrote it."""
_MODULES: Final = (
    gantry_protocol.admin,
    gantry_protocol.admin_topics,
    outcomes,
    gantry_operator.models,
    gantry_operator.models.base,
    gantry_operator.models.consumer_group,
    gantry_operator.models.entity,
    gantry_operator.models.message_user,
    gantry_operator.models.topic,
    gantry_operator.plan.crashes,
    gantry_operator.plan.turns,
    gantry_operator.plan.actions,
    gantry_operator.plan.entities,
    gantry_operator.plan.observed,
    gantry_operator.plan.offset_resets,
)
_NAMES: Final = {
    name: found
    for module in _MODULES
    for name, found in vars(module).items()
    if inspect.isclass(found) and issubclass(found, (msgspec.Struct, BaseModel))
}
"""Every class that may stand in a file; no other is ever made from one."""
_LOCAL: Final = {**_NAMES, "Body": Body, "ConditionStatus": ConditionStatus}
"""What the modules' own types are written with."""
_SEEN: Final = {
    one.__name__: one for one in (BrokerObserved, ControllerObserved, FrontObserved, EntityObserved)
}
_FORMS: Final = {"missing_secrets": "missing_secret_names"}
"""Fields by the names that they have in a file, where a redactor would take them for secrets."""
_FIELDS: Final = {form: name for name, form in _FORMS.items()}


class NotADecisionError(GantryError):
    """Data that is no decision, or one of another version; the text says where and what."""


class _Coder(NamedTuple):
    """How values of one type are written and read; reading takes the place for people."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def fields_of(seen: Seen) -> dict[str, Any]:
    """The fields of an observation as plain data; objects of Kubernetes are shared, not copied."""
    written: dict[str, Any] = _struct(type(seen)).write(seen)
    return written


def seen_of(kind: object, fields: object, place: str) -> Seen:
    """The observation of a class by its name.

    Raises:
        NotADecisionError: it is none of this version.
    """
    if not isinstance(kind, str) or kind not in _SEEN:
        raise NotADecisionError(f"{place}: this version knows no observation {_shown(kind)}.")
    found: Seen = _struct(_SEEN[kind]).read(fields, place)
    return found


def data_of(actions: Sequence[Action]) -> list[Any]:
    """A plan as plain data."""
    return [_action().write(action) for action in actions]


def moment(text: object, place: str) -> dt.datetime:
    """A time with its zone, as `isoformat` writes it.

    Raises:
        NotADecisionError: it is none.
    """
    try:
        found = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise NotADecisionError(f"{place}: {_shown(text)} is no time with a zone.")
    return found


@functools.cache
def _action() -> _Coder:
    return _coder(Action)


@functools.cache
def _struct(kind: type[msgspec.Struct]) -> _Coder:
    """A structure by the types of its fields."""
    hints = get_type_hints(kind, localns=_LOCAL)
    coders = {
        name: _told() if name == "told" else _coder(hints[name]) for name in kind.__struct_fields__
    }

    forms = {name: _FORMS.get(name, name) for name in coders}

    def write(value: Any) -> dict[str, Any]:
        return {forms[name]: coder.write(getattr(value, name)) for name, coder in coders.items()}

    def read(data: Any, place: str) -> Any:
        given = {_FIELDS.get(name, name): part for name, part in _typed(data, dict, place).items()}
        for name in given:
            if name not in coders:
                raise NotADecisionError(
                    f"{place}: this version knows no field {_shown(name)} of {kind.__name__}; "
                    "use the version that recorded it, or a later one."
                )
        values = {name: coders[name].read(part, f"{place}.{name}") for name, part in given.items()}
        try:
            return kind(**values)
        except TypeError as error:
            raise NotADecisionError(f"{place}: this is no {kind.__name__}: {error}.") from None

    return _Coder(write, read)


def _model(kind: type[BaseModel]) -> _Coder:
    def read(data: Any, place: str) -> Any:
        try:
            return kind.model_validate(_typed(data, dict, place))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise NotADecisionError(
                f"{place}: this is no {kind.__name__}: {where}: {first['msg']}."
            ) from None

    return _Coder(lambda value: value.model_dump(mode="json", by_alias=True), read)


def _named(kinds: tuple[type[Any], ...]) -> _Coder:
    """One of several classes, under its name."""
    coders = {kind.__name__: _plain_class(kind) for kind in kinds}

    def write(value: Any) -> dict[str, Any]:
        name = type(value).__name__
        return {name: coders[name].write(value)}

    def read(data: Any, place: str) -> Any:
        given = _typed(data, dict, place)
        name = next(iter(given), None)
        if len(given) != 1 or name not in coders:
            raise NotADecisionError(f"{place}: {_shown(name)} is none of {', '.join(coders)}.")
        return coders[name].read(given[name], f"{place}.{name}")

    return _Coder(write, read)


def _plain_class(kind: type[Any]) -> _Coder:
    return _struct(kind) if issubclass(kind, msgspec.Struct) else _model(kind)


def _kinds(kind: type[Any]) -> tuple[type[Any], ...]:
    """A class and those that are made from it, as far as they may stand in a file."""
    return tuple({one.__name__: one for one in _NAMES.values() if issubclass(one, kind)}.values())


def _coder(hint: Any) -> _Coder:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint == Body:
        return _Coder(lambda value: value, lambda data, _: data)
    if origin in (Union, types.UnionType):
        return _either(args)
    if origin is Literal:
        return _Coder(lambda value: value, functools.partial(_one_of, args))
    if origin is tuple and args[1:] == (...,):
        return _many(_coder(args[0]))
    if origin is dict:
        return _mapping(args[0], _coder(args[1]))
    if origin is type:
        return _class(args[0])
    if inspect.isclass(hint) and issubclass(hint, (msgspec.Struct, BaseModel)):
        kinds = _kinds(hint)
        return _named(kinds) if len(kinds) > 1 else _plain_class(hint)
    if inspect.isclass(hint) and issubclass(hint, tuple):
        return _record(hint)
    if hint is dt.datetime:
        return _Coder(dt.datetime.isoformat, moment)
    if inspect.isclass(hint) and issubclass(hint, enum.StrEnum):
        return _words(hint)
    assert hint in (str, int, float, bool), f"no form for {hint}"
    return _Coder(lambda value: value, lambda data, place: _typed(data, hint, place))


def _words(kind: type[enum.StrEnum]) -> _Coder:
    by_value = {one.value: one for one in kind}
    return _Coder(str, lambda data, place: by_value[_one_of(tuple(by_value), data, place)])


def _either(args: tuple[Any, ...]) -> _Coder:
    some = tuple(arg for arg in args if arg is not types.NoneType)
    inner = _coder(some[0]) if len(some) == 1 else _named(some)
    if len(some) == len(args):
        return inner
    return _Coder(
        lambda value: None if value is None else inner.write(value),
        lambda data, place: None if data is None else inner.read(data, place),
    )


def _many(inner: _Coder) -> _Coder:
    def read(data: Any, place: str) -> tuple[Any, ...]:
        given = enumerate(_typed(data, list, place))
        return tuple(inner.read(part, f"{place}[{number}]") for number, part in given)

    return _Coder(lambda value: [inner.write(part) for part in value], read)


def _record(kind: Any) -> _Coder:
    """A tuple with names."""
    hints = get_type_hints(kind, localns=_LOCAL)
    inner = [_coder(hints[name]) for name in kind._fields]

    def read(data: Any, place: str) -> Any:
        given = _typed(data, list, place)
        if len(given) != len(inner):
            raise NotADecisionError(f"{place}: this is no {kind.__name__}.")
        return kind(*(one.read(part, place) for one, part in zip(inner, given, strict=True)))

    return _Coder(
        lambda value: [one.write(part) for one, part in zip(inner, value, strict=True)], read
    )


def _told() -> _Coder:
    """Fields of a status by name: a model under the name of its class, anything else as it is."""
    models = {name: _model(kind) for name, kind in _NAMES.items() if issubclass(kind, BaseModel)}

    def write(value: Any) -> Any:
        name = type(value).__name__
        return {name: models[name].write(value)} if name in models else value

    def read(data: Any, place: str) -> Any:
        name = next(iter(data), None) if isinstance(data, dict) and len(data) == 1 else None
        return models[name].read(data[name], place) if name in models else data

    return _mapping(str, _Coder(write, read))


def _mapping(key: Any, inner: _Coder) -> _Coder:
    """Keys are words; those of objects are kind and name, with a slash between."""
    joined = key is not str

    def write(value: Any) -> dict[str, Any]:
        parts = value.items()
        return {"/".join(k) if joined else k: inner.write(part) for k, part in parts}

    def read(data: Any, place: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for name, part in _typed(data, dict, place).items():
            kind, slash, rest = name.partition("/")
            if joined and not slash:
                raise NotADecisionError(f"{place}: {_shown(name)} is no kind and name.")
            found[(kind, rest) if joined else name] = inner.read(part, f"{place}[{name}]")
        return found

    return _Coder(write, read)


def _class(kind: Any) -> _Coder:
    names = {one.__name__: one for one in _kinds(kind)}
    return _Coder(
        lambda value: value.__name__,
        lambda data, place: names[_one_of(tuple(names), data, place)],
    )


def _typed(data: Any, kind: type[Any], place: str) -> Any:
    is_number = kind is float and isinstance(data, int) and not isinstance(data, bool)
    if not (is_number or isinstance(data, kind)) or (kind is int and isinstance(data, bool)):
        got = type(data).__name__
        raise NotADecisionError(f"{place}: {_shown(data)} is {got}, and {kind.__name__} is needed.")
    return data


def _one_of(known: tuple[Any, ...], data: Any, place: str) -> Any:
    if not isinstance(data, (str, int)) or data not in known:
        raise NotADecisionError(f"{place}: this version does not know {_shown(data)}.")
    return data


def _shown(value: object) -> str:
    """A value as far as it fits into a sentence."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
