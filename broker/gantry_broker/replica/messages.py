"""Messages of a replication link, as values without bytes.

The conversation of one link, replica to master (upstream's ``AutoSwitchHAClient`` and
``AutoSwitchHAConnection``, made explicit)::

    replica -> master   Hello      who I am, which epoch I follow, what my log looks like
    master -> replica   Truncate   cut your log here; this is durable before you answer
    replica -> master   Ack        my flushed end; the first one asks for the stream to begin
    master -> replica   Append     a range of bytes of one epoch; none = a heartbeat
    either way          Farewell   why the link ends

A member that found damage in its log asks another on a link of its own, which begins without a
Hello. A member of an older version ends that link::

    replica -> master   RangeAsk   a range of the log, maybe several times
    master -> replica   Range      its bytes, or why not

Every message after Hello carries the master's epoch; a message of another epoch ends the link.
``gantry_broker.ha.wire`` gives the messages their bytes.
"""

import msgspec
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset


class Hello(msgspec.Struct, frozen=True):
    """A replica asks to follow.

    Attributes:
        epoch: the group epoch in which the replica was told to follow this master.
        log_start: its oldest byte.
        end: one past its newest byte, flushed or not.
        lineage: its (epoch, start) entries, oldest first.
        draining: it is about to leave; do not wait for it longer than you must.
    """

    epoch: Epoch
    broker_id: BrokerId
    incarnation: str
    log_start: Offset
    end: Offset
    lineage: tuple[EpochEntry, ...]
    draining: bool = False


class Truncate(msgspec.Struct, frozen=True):
    """The master's answer to Hello.

    Attributes:
        point: cut the log here; equal to the replica's end when there is nothing to cut.
        entry: the lineage entry of the first byte that will follow, so that the replica saves the
            cut and the new epoch together.
        reset: True when the master no longer has the bytes after the last common point, or there is
            no common point inside both logs: start an empty log at ``point``.
    """

    epoch: Epoch
    incarnation: str
    point: Offset
    entry: EpochEntry
    reset: bool = False


class Append(msgspec.Struct, frozen=True):
    """Whole records (or the blank filler at a file's end) of one epoch; empty data = heartbeat.

    Attributes:
        epoch: the master's epoch, not that of the bytes.
        entry: the lineage entry under which the byte at ``offset`` was written.
        offset: of the first byte; equals the replica's end.
        confirm: the master's confirm offset when it sent this.
        in_sync: whether the replica is a member of the sync-state set, as the master knows it.
    """

    epoch: Epoch
    entry: EpochEntry
    offset: Offset
    confirm: Offset
    in_sync: bool
    data: bytes = b""


class Ack(msgspec.Struct, frozen=True):
    """Everything below ``flushed_end`` is on the replica's disk, and equal to the master's.

    Attributes:
        has_room: its disk is far from full; an older replica never says so.
    """

    epoch: Epoch
    flushed_end: Offset
    draining: bool = False
    has_room: bool = False


class Farewell(msgspec.Struct, frozen=True):
    """The reason why the sender ends the link, for the other side's log.

    Attributes:
        epoch: the newest epoch the sender knows; a peer with an older one asks the controller.
    """

    epoch: Epoch
    reason: str


class RangeAsk(msgspec.Struct, frozen=True):
    """A member asks for ``length`` bytes of the confirmed log from ``start`` on."""

    start: Offset
    length: int


class Range(msgspec.Struct, frozen=True):
    """The bytes from ``start`` on that were asked for, or ``reason`` why they are not given.

    With a reason, a later ``start`` than was asked for is where the sender's log begins.
    """

    start: Offset
    data: bytes
    reason: str = ""


Message = Hello | Truncate | Append | Ack | Farewell | RangeAsk | Range
