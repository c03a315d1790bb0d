"""The metadata state as slices of bytes, and back.

``take`` makes a view that later events do not change: dictionaries are copied, their values are
immutable. Encoding the view is left to the caller, slice by slice, so that nothing stands still for
long while 100,000 groups are written. Every replicated field of ``MetadataState`` is in it, because
the list of fields is read from the class.

A slice is one msgpack array: the field's name, then its value, or some of the (key, value) pairs of
a dictionary. Nothing is sorted: a dictionary's order follows from the log, and a restored one has
the order of the one it was taken from, so replicas produce equal bytes whatever their hash seed.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from gantry_protocol.errors import DataDirError

from gantry_controller.metadata.state import MetadataState

SLICE_BYTES = 256 * 1024  # what a slice is aimed at: below a millisecond of encoding
PAIRS_MAX = 512  # bounds the first slice after values have suddenly become greater

_HINTS = get_type_hints(MetadataState)
FIELDS: dict[str, Any] = {name: _HINTS[name] for name in MetadataState.REPLICATED}
"""Every replicated field and its type, in the order in which it is written."""

_ENVELOPE = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def _is_table(kind: Any) -> bool:
    return get_origin(kind) is dict


def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    if not _is_table(kind):
        return msgspec.msgpack.Decoder(kind)
    key, value = get_args(kind)
    return msgspec.msgpack.Decoder(list[tuple[key, value]])  # type: ignore[valid-type]  # run-time


_DECODERS = {name: _decoder(kind) for name, kind in FIELDS.items()}


class Part(msgspec.Struct, frozen=True):
    """A decoded slice: a value, or pairs of a dictionary, for one field."""

    field: str
    content: Any


def take(state: MetadataState) -> Iterator[bytes]:
    """A view of ``state`` as of now; each step encodes one slice of it."""
    view = {
        name: getattr(state, name).copy() if _is_table(kind) else getattr(state, name)
        for name, kind in FIELDS.items()
    }  # copy() clones the table whole; dict() inserts one by one once anything was deleted
    return _encode(view)


def _encode(view: dict[str, Any]) -> Iterator[bytes]:
    encode = msgspec.msgpack.Encoder().encode
    for name, kind in FIELDS.items():
        if not _is_table(kind):
            yield encode((name, view[name]))
            continue
        pairs = iter(view.pop(name).items())
        count = PAIRS_MAX // 8
        while some := list(islice(pairs, count)):
            data = encode((name, some))
            yield data
            count = min(max(count * SLICE_BYTES // len(data), 1), 2 * count, PAIRS_MAX)


def decode(data: bytes) -> Part:
    """One slice.

    Raises:
        DataDirError: it was written by a newer program.
    """
    try:
        name, content = _ENVELOPE.decode(data)
        if name not in _DECODERS:
            raise DataDirError(
                f"The snapshot has the field {name!r}, which this program does not know: start a "
                "program at least as new as the one that wrote it."
            )
        return Part(name, _DECODERS[name].decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataDirError(
            f"The snapshot cannot be read by this program ({error}): start a program at least as "
            "new as the one that wrote it."
        ) from error


def assemble(slices: Iterable[bytes]) -> MetadataState:
    """The state that a verified snapshot holds, its indexes and its digest included.

    Raises:
        DataDirError: it was written by a newer program.
    """
    fresh: dict[str, Any] = {name: {} for name, kind in FIELDS.items() if _is_table(kind)}
    for part in map(decode, slices):
        if _is_table(FIELDS[part.field]):
            fresh[part.field].update(part.content)
        else:
            fresh[part.field] = part.content
    assert fresh.keys() == FIELDS.keys(), "a verified snapshot is complete"
    state = MetadataState()
    for name, value in fresh.items():
        setattr(state, name, value)
    state.rebuild_indexes()
    state.digest()  # the first one reads every record
    return state


def restore(state: MetadataState, fresh: MetadataState) -> None:
    """Replace everything in ``state`` by what ``fresh`` holds, which is given up."""
    for name in MetadataState.__slots__:
        setattr(state, name, getattr(fresh, name))
