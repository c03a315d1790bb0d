"""Inputs and outputs of the core, as far as its decisions rest on them; pure.

A command is of no interest to the core but for its size, so nothing here holds one: of entries the
recording has sizes and terms, and where the core reads an entry itself (members, leases) what it
says. All of this is made while the core runs, once or twice in each pass, so it keeps references to
frozen values and leaves the work to whoever reads.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.steps.plain import Hollow

from gantry_controller.raft.members import Membership, decode_members, encode_members
from gantry_controller.raft.messages import (
    COMMAND,
    LEASE_OFF,
    LEASE_ON,
    Append,
    Entry,
    EntryKind,
    HardState,
    make_entry,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_controller.raft.messages import Message
    from gantry_controller.raft.reads import ReadMode
    from gantry_controller.raft.ready import Ready, SoftState
    from gantry_controller.raft.snapshot import Marker


ARRAY_BYTES = 80
ENTRIES_BYTES = 500
MESSAGE_BYTES = 200
READY_BYTES = 400
"""What the parts of a step take in memory, about (``ring.STEP_BYTES``)."""
_NONE: list[Any] = []  # of all that have none; nobody changes it


class OtherEntry(msgspec.Struct, frozen=True):
    """An entry that is no command, at its place among others.

    Attributes:
        kind: see ``EntryKind``.
        members, lease: what it says.
    """

    place: int
    kind: int
    members: Membership | None = None
    lease: bool | None = None


class EntriesGiven(msgspec.Struct, frozen=True):
    """Entries that a leader sent.

    Attributes:
        terms: one for all, or one of each.
        sizes: of each, encoded.
        others: those that are no commands.
    """

    first_index: int
    terms: Any
    sizes: Any
    others: tuple[OtherEntry, ...] = ()


class AppendGiven(msgspec.Struct, frozen=True):
    """An append with entries: itself without them, and what matters of them."""

    append: Append
    entries: EntriesGiven


class AppendTold(msgspec.Struct, frozen=True, gc=False):
    """An append that the core sent: where its entries end, since a log and that say which."""

    source: int
    target: int
    term: int
    prev_index: int
    prev_term: int
    commit: int
    round: int
    admit: int
    count: int
    last_index: int
    last_term: int


class EntriesTold(msgspec.Struct, frozen=True, gc=False):
    """Entries of the own log that are to be written or applied."""

    count: int
    first_index: int
    last_index: int
    last_term: int


class ReadsTold(msgspec.Struct, frozen=True):
    """Reads that may be answered."""

    index: int
    count: int
    mode: ReadMode


class ReadyTold(msgspec.Struct, frozen=True):
    """A ``Ready`` that has something in it; of one that has not, its batch is all there is."""

    batch: int
    markers: list[Marker]
    hard_state: HardState | None
    entries: EntriesTold | None
    messages_now: list[Any]
    messages_after_persist: list[Any]
    committed: EntriesTold | None
    reads: list[ReadsTold]
    dropped: int
    redirected: int
    soft_state: SoftState | None


def sizes_of(commands: Sequence[bytes]) -> array[int]:
    """The sizes of commands."""
    return array("I", map(len, commands))


def encoded_sizes(entries: Sequence[Entry]) -> array[int]:
    """The sizes of entries."""
    return array("I", [len(entry.encoded) for entry in entries])


def given_message(message: Message) -> Any:
    """A message as it is kept: without the commands in it."""
    if type(message) is not Append or not message.entries:
        return message
    entries = message.entries
    first, last = entries[0].term, entries[-1].term
    others = [(n, one) for n, one in enumerate(entries) if one.kind is not COMMAND]
    return AppendGiven(
        msgspec.structs.replace(message, entries=()),
        EntriesGiven(
            entries[0].index,
            # Terms never fall along a log, so equal ends say that all are equal.
            first if first == last else [one.term for one in entries],
            encoded_sizes(entries),
            tuple(_other(place, one) for place, one in others) if others else (),
        ),
    )


def message_again(given: Any) -> Any:
    """The message that was kept, with hollow commands."""
    if not isinstance(given, AppendGiven):
        return given
    entries, terms = given.entries, given.entries.terms
    others = {one.place: one for one in entries.others}
    made = [
        entry_again(
            entries.first_index + place,
            terms[place] if isinstance(terms, list) else terms,
            size,
            others.get(place),
        )
        for place, size in enumerate(entries.sizes)
    ]
    return msgspec.structs.replace(given.append, entries=tuple(made))


def entry_again(index: Any, term: Any, size: int, other: OtherEntry | None = None) -> Entry:
    """An entry of so many bytes."""
    if other is None:
        hollow: Any = Hollow(size)
        return Entry(index, term, COMMAND, hollow)
    command = b""
    if other.members is not None:
        command = encode_members(other.members)
    elif other.lease is not None:
        command = LEASE_ON if other.lease else LEASE_OFF
    return make_entry(EntryKind(other.kind), term, index, command)


def commands_again(sizes: Sequence[int]) -> list[Any]:
    """Commands of these sizes."""
    return [Hollow(size) for size in sizes]


def _other(place: int, entry: Entry) -> OtherEntry:
    members = decode_members(entry.command) if entry.kind is EntryKind.MEMBERS else None
    lease = entry.command == LEASE_ON if entry.kind is EntryKind.LEASE else None
    return OtherEntry(place, int(entry.kind), members, lease)


def ready_told(ready: Ready) -> Any:
    """The core's output as it is kept."""
    now, after, entries = ready.messages_now, ready.messages_after_persist, ready.entries
    if not (
        now
        or after
        or entries
        or ready.committed
        or ready.hard_state is not None
        or ready.reads
        or ready.soft_state is not None
        or ready.markers
        or ready.reads_dropped
        or ready.reads_redirected
    ):
        return ready.batch
    return ReadyTold(
        ready.batch,
        ready.markers or _NONE,
        ready.hard_state,
        _entries_told(entries) if entries else None,
        [_message_told(one) for one in now] if now else _NONE,
        after or _NONE,  # never an append
        _entries_told(ready.committed) if ready.committed else None,
        [ReadsTold(one.index, len(one.contexts), one.mode) for one in ready.reads]
        if ready.reads
        else _NONE,
        len(ready.reads_dropped),
        len(ready.reads_redirected),
        ready.soft_state,
    )


def result_told(result: Any) -> Any:
    """The result of an input; of entries that were dropped it is their number."""
    return len(result) if isinstance(result, list) else result


def size(outcome: Any) -> int:
    """The bytes that an output takes in memory, about."""
    if type(outcome) is not ReadyTold:
        return 0
    messages = len(outcome.messages_now) + len(outcome.messages_after_persist)
    return READY_BYTES + MESSAGE_BYTES * (messages + len(outcome.reads))


def _message_told(message: Message) -> Any:
    if type(message) is not Append:
        return message
    entries = message.entries
    return AppendTold(
        message.source,
        message.target,
        message.term,
        message.prev_index,
        message.prev_term,
        message.commit,
        message.round,
        message.admit,
        len(entries),
        entries[-1].index if entries else message.prev_index,
        entries[-1].term if entries else message.prev_term,
    )


def _entries_told(entries: Sequence[Entry]) -> EntriesTold:
    last = entries[-1]
    return EntriesTold(len(entries), entries[0].index, last.index, last.term)
