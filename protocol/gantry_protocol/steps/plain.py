"""Values of a core as plain data, and back; pure.

Plain is what JSON knows. A value of a class is an object with one key, the name of the class; so
are tuples, queues, sets and mappings, since JSON has none. Only classes of the core's own modules
are ever made from a file. Of bytes the size alone is written, and of callers that wait (``held``)
the number alone: a core's decisions rest on no more.
"""

from __future__ import annotations

import enum
import inspect
from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

HELD_MAX: Final = 10_000_000
SHOWN_CHARS: Final = 120
_REF: Final = "ref"


class NotStepsError(GantryError):
    """Data that is no recording of steps, or not of this version; the text says where and what."""


class Raised(msgspec.Struct, frozen=True):
    """The core's refusal or failure."""

    error: str
    says: str


def raised(error: Exception) -> Raised:
    """A failure in words."""
    return Raised(type(error).__name__, str(error))


class Hollow:
    """Bytes of which only the number is known; a header before them makes more of the same."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __radd__(self, before: bytes) -> Hollow:
        return Hollow(len(before) + self._size)


class OwnForm(NamedTuple):
    """The form of a class whose attributes are not its value.

    Attributes:
        told: the value that stands for one.
        made: one, from that value.
    """

    told: Callable[[Any], Any]
    made: Callable[[Any], Any]


class Plain:
    """The plain form of one core's values.

    Args:
        modules: whose classes may stand in a file.
        skipped: attributes that are written elsewhere, or are the process's own.
        held: attributes of which the length is written.
        sparse: a class whose empty attributes are left out.
        shared: classes whose objects several others hold: each object is written once in a value,
            and then referred to.
        own: forms of classes.
        renamed: attributes that have another name in a file, where people look for secrets by their
            names.
        attributes: of classes that list them nowhere; an object with others is of another version.
    """

    def __init__(
        self,
        modules: Iterable[ModuleType],
        *,
        skipped: Iterable[str] = (),
        held: Iterable[str] = (),
        sparse: type[Any] | None = None,
        shared: Iterable[type[Any]] = (),
        own: Mapping[type[Any], OwnForm] | None = None,
        renamed: Mapping[str, str] | None = None,
        attributes: Callable[[], Mapping[type[Any], Iterable[str]]] = dict,
    ) -> None:
        self.classes: dict[str, type[Any]] = {"Raised": Raised}
        for module in modules:
            for name, found in vars(module).items():
                if inspect.isclass(found) and found.__module__ == module.__name__:
                    assert self.classes.setdefault(name, found) is found, f"two classes {name}"
        self.skipped = frozenset(skipped)
        self._held = frozenset(held)
        self._sparse = sparse
        self._shared = frozenset(shared)
        self._own = own or {}
        self._renamed = renamed or {}
        self.names: dict[str, str] = {new: name for name, new in self._renamed.items()}
        self._attributes = attributes

    def written(self, value: Any, known: dict[int, int] | None = None) -> Any:
        """A value as plain data.

        Args:
            value: of the core.
            known: numbers of shared objects that were written before, by their identity.

        Raises:
            TypeError: it is none of the core's.
        """
        kind = type(value)
        if value is None or kind in (int, str, bool):
            return value
        known = {} if known is None else known
        form = _FORMS.get(kind)
        if form is not None:
            return form(value, lambda one: self.written(one, known))
        if self.classes.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__name__} is no value of the core")
        if isinstance(value, enum.Enum):
            return {kind.__name__: value.value}
        if kind in self._shared:
            if id(value) in known:
                return {_REF: known[id(value)]}
            known[id(value)] = len(known)
        if kind in self._own:
            return {kind.__name__: self.written(self._own[kind].told(value), known)}
        return {kind.__name__: self.fields(value, self.names_of(value), known)}

    def fields(self, value: Any, names: Iterable[str], known: dict[int, int]) -> dict[str, Any]:
        """Attributes of an object as plain data."""
        found: dict[str, Any] = {}
        for name in names:
            one = getattr(value, name)
            told = {"held": len(one)} if name in self._held else self.written(one, known)
            found[self._renamed.get(name, name)] = told
        if type(value) is self._sparse:
            return {name: one for name, one in found.items() if one not in (None, [], 0)}
        return found

    def names_of(self, value: Any) -> list[str]:
        """The attributes of an object that are written, in their order."""
        if isinstance(value, msgspec.Struct):
            names: Any = value.__struct_fields__
        else:
            kind = type(value)
            names = getattr(kind, "_fields", None) or getattr(kind, "__slots__", None)
            names = vars(value) if names is None else names
        return [name for name in names if name not in self.skipped]

    def read(self, data: Any, place: str) -> Any:
        """The value that plain data stands for.

        Raises:
            NotStepsError: it is none.
        """
        return _ValueReading(self, self._own, self._shared, self._attributes).read(data, place)


def _of_sizes(value: array[int], _: Callable[[Any], Any]) -> dict[str, Any]:
    return {"sizes" if value.typecode == "I" else "numbers": value.tolist()}


_FORMS: Final[dict[type[Any], Callable[[Any, Callable[[Any], Any]], Any]]] = {
    list: lambda value, written: [written(one) for one in value],
    tuple: lambda value, written: {"tuple": [written(one) for one in value]},
    deque: lambda value, written: {"deque": [written(one) for one in value]},
    dict: lambda value, written: {"map": [[written(k), written(v)] for k, v in value.items()]},
    Counter: lambda value, written: {
        "counter": [[written(k), v] for k, v in sorted(value.items())]
    },
    set: lambda value, written: {"set": sorted(value)},
    frozenset: lambda value, written: {"frozenset": sorted(value)},
    array: _of_sizes,
    bytes: lambda value, written: {"hollow": len(value)},
    Hollow: lambda value, written: {"hollow": len(value)},
}
"""Of classes that are not the core's own. The order of a set is none of its value."""


class _ValueReading:
    """One value, with the shared objects that were made for it so far."""

    def __init__(
        self,
        plain: Plain,
        own: Mapping[type[Any], OwnForm],
        shared: frozenset[type[Any]],
        attributes: Callable[[], Mapping[type[Any], Iterable[str]]],
    ) -> None:
        self._plain = plain
        self._own = own
        self._shared = shared
        self._attributes = attributes
        self._made: list[Any] = []

    def read(self, data: Any, place: str) -> Any:
        if isinstance(data, list):
            return [self.read(one, place) for one in data]
        if not isinstance(data, dict):
            if data is None or isinstance(data, (int, str)):
                return data
            raise NotStepsError(f"{place}: {shown(data)} is no value of the core.")
        if len(data) != 1:
            raise NotStepsError(f"{place}: {shown(data)} names no class.")
        ((name, inner),) = data.items()
        try:
            return self._value(name, inner, place)
        except (TypeError, ValueError, OverflowError, IndexError, GantryError) as error:
            if isinstance(error, NotStepsError):
                raise
            why = str(error).rstrip(".")
            raise NotStepsError(f"{place}: this is no {shown(name)}: {why}.") from None

    def _value(self, name: str, inner: Any, place: str) -> Any:
        match name:
            case "tuple":
                return tuple(self.read(one, place) for one in inner)
            case "deque":
                return deque(self.read(one, place) for one in inner)
            case "map":
                return {self.read(key, place): self.read(one, place) for key, one in inner}
            case "counter":
                return Counter({self.read(key, place): self.read(one, place) for key, one in inner})
            case "set":
                return {self.read(one, place) for one in inner}
            case "frozenset":
                return frozenset(self.read(one, place) for one in inner)
            case "sizes" | "numbers":
                return array("I" if name == "sizes" else "q", inner)
            case "held" | "hollow":
                if not isinstance(inner, int) or not 0 <= inner <= HELD_MAX:
                    raise NotStepsError(f"{place}: {shown(inner)} callers cannot wait.")
                return [None] * inner if name == "held" else Hollow(inner) if inner else b""
            case "ref":
                return self._made[inner]
        return self._of_class(name, inner, place)

    def _of_class(self, name: str, inner: Any, place: str) -> Any:
        kind = self._plain.classes.get(name)
        if kind is None:
            raise NotStepsError(f"{place}: this version knows no {shown(name)}.")
        if issubclass(kind, enum.Enum):
            return kind(inner)
        number = len(self._made)
        is_value = issubclass(kind, msgspec.Struct | tuple)
        made: Any = None if is_value or kind in self._own else object.__new__(kind)
        if kind in self._shared:
            self._made.append(made)
        if kind in self._own:
            made = self._own[kind].made(self.read(inner, place))
        elif not isinstance(inner, dict):
            raise NotStepsError(f"{place}: {shown(inner)} is no {name}.")
        else:
            names = self._plain.names
            fields = {
                names.get(key) or key: self.read(one, f"{place}.{key}")
                for key, one in inner.items()
            }
            self._must_fit(kind, fields, place)
            made = _filled(kind, made, fields)
        if kind in self._shared:
            self._made[number] = made
        return made

    def _must_fit(self, kind: type[Any], fields: dict[str, Any], place: str) -> None:
        if issubclass(kind, msgspec.Struct | tuple):
            return
        names = getattr(kind, "__slots__", None)
        names = self._attributes().get(kind) if names is None else names
        if names is not None and set(fields) != set(names) - self._plain.skipped:
            raise NotStepsError(
                f"{place}: a {kind.__name__} of another version: use the one that recorded it."
            )


def _filled(kind: type[Any], made: Any, fields: dict[str, Any]) -> Any:
    if made is None:
        return kind(**fields)
    for key, one in fields.items():
        setattr(made, key, one)
    return made


def shown(value: object) -> str:
    """A value as far as it fits into a sentence."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
