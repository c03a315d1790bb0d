"""Everything a replica can want done: the only outputs of ``ReplicaCore.step``.

Effects are carried out in order. Those that end (``SaveState``, ``CutLog``, ``OpenLink``,
``Propose``, ``HandOver``) come back as an event; the others are final.
"""

from collections.abc import Sequence
from enum import Enum, auto

import msgspec
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_broker.replica.lineage import StoredState
from gantry_broker.replica.messages import Message


class SaveState(msgspec.Struct, frozen=True):
    """Make the state durable, after every earlier one, then say ``StateSaved``."""

    token: int
    state: StoredState


class CutLog(msgspec.Struct, frozen=True):
    """Cut the log and everything derived from it at ``point``, durably, then say ``LogCut``.

    Attributes:
        reset: throw the whole log away and start an empty one at ``point``.
    """

    point: Offset
    reset: bool


class AppendLog(msgspec.Struct, frozen=True):
    """Append the master's bytes at ``offset``, which is the end of the log, and flush them soon."""

    offset: Offset
    data: bytes


class OpenLink(msgspec.Struct, frozen=True):
    """Connect to the master's replication listener."""

    link: int
    address: str


class CloseLink(msgspec.Struct, frozen=True):
    """End a link; the core has forgotten it already and wants no ``LinkClosed``."""

    link: int
    reason: str


class Send(msgspec.Struct, frozen=True):
    """Send a message on a link."""

    link: int
    message: Message


class Feed(msgspec.Struct, frozen=True):
    """There may be bytes to send: ask ``next_batch`` for every streaming link."""


class Fate(Enum):
    """The end of a write."""

    CONFIRMED = auto()  # by a set that has the minimum of members: it is acknowledged
    TOO_FEW = auto()  # by a set that has fewer
    LATE = auto()  # nobody has confirmed it in time
    DEPOSED = auto()  # the mastership is over
    CUT_OFF = auto()  # another master may have been elected


class ConfirmMoved(msgspec.Struct, frozen=True):
    """The confirm offset rose to ``confirm``, and with it ended the ``writes`` below.

    Attributes:
        fate: of all of them, as of this very rise: ``CONFIRMED`` or ``TOO_FEW``. They are answered
            once what is confirmed can be read.
    """

    confirm: Offset
    fate: Fate = Fate.CONFIRMED
    writes: Sequence[object] = []


class WritesEnded(msgspec.Struct, frozen=True):
    """These writes ended without being confirmed; answer them."""

    fate: Fate
    writes: Sequence[object]


class Propose(msgspec.Struct, frozen=True):
    """Ask the controller for another sync-state set, by compare on both epochs."""

    attempt: int
    master_epoch: Epoch
    sync_state_set: frozenset[BrokerId]
    sync_state_set_epoch: int


class Promoted(msgspec.Struct, frozen=True):
    """This replica serves as master from now on; its first record goes to ``start``."""

    epoch: Epoch
    start: Offset


class Demoted(msgspec.Struct, frozen=True):
    """This replica has stopped being the master of ``epoch``, for good.

    Attributes:
        writes: those that waited, which end with it. They are answered once whoever passes clients
            on has heard of it: what is not answered here goes to the next master as it is.
    """

    epoch: Epoch
    writes: Sequence[object] = []


class SetChanged(msgspec.Struct, frozen=True):
    """The sync-state set, as this master knows it, changed."""

    sync_state_set: frozenset[BrokerId]


class AskView(msgspec.Struct, frozen=True):
    """Something does not fit what we know of the group: read it from the controller now."""

    reason: str


class AskElection(msgspec.Struct, frozen=True):
    """Nobody can serve: ask the controller to see to it that there is a master."""


class HandOver(msgspec.Struct, frozen=True):
    """Ask the controller to make ``target`` the master, if ``epoch`` is still the current one."""

    target: BrokerId
    epoch: Epoch


class DrainEnded(msgspec.Struct, frozen=True):
    """Nothing more is gained by staying; the process may end."""

    reason: str


class DiskSilent(msgspec.Struct, frozen=True):
    """This replica's disk does not answer; said once for each sentence.

    Attributes:
        waited_ms: how long nothing has become durable.
        sentence: what is done about it.
    """

    waited_ms: int
    sentence: str


class DiskAnswers(msgspec.Struct, frozen=True):
    """The disk that was silent has made something durable."""


class Slow(msgspec.Struct, frozen=True):
    """A member has left the set since everybody waited for it, and has to keep up for a while.

    Attributes:
        recent_ms: how long it was waited for lately.
        probation_ms: how long it has to keep up.
    """

    broker_id: BrokerId
    recent_ms: int
    probation_ms: int


class CutOff(msgspec.Struct, frozen=True):
    """This master may have been replaced without hearing of it: it takes nothing any more.

    Attributes:
        silent: members of the set that it does not hear.
        controllers_ms: how long the controllers have answered nothing.
    """

    silent: tuple[BrokerId, ...]
    controllers_ms: int


class InTouch(msgspec.Struct, frozen=True):
    """The master that was cut off is the master still, and goes on."""


class DiskFull(msgspec.Struct, frozen=True):
    """This master's disk is full; said once for each sentence.

    Attributes:
        sentence: what is done about it.
        gives_way: somebody will be asked to take over as soon as all that was written is confirmed.
    """

    sentence: str
    gives_way: bool


class DiskHasRoom(msgspec.Struct, frozen=True):
    """The disk of this replica, which was the master then, is not full any more."""


class Stuck(msgspec.Struct, frozen=True):
    """This replica refuses to go on, because going on would lose records; a person must look.

    Attributes:
        code: ``ControllerBehind`` or ``DivergedBelowConfirm``.
    """

    code: str
    sentence: str


Effect = (
    SaveState
    | CutLog
    | AppendLog
    | OpenLink
    | CloseLink
    | Send
    | Feed
    | ConfirmMoved
    | WritesEnded
    | Propose
    | Promoted
    | Demoted
    | SetChanged
    | AskView
    | AskElection
    | HandOver
    | DrainEnded
    | DiskSilent
    | DiskAnswers
    | Slow
    | CutOff
    | InTouch
    | DiskFull
    | DiskHasRoom
    | Stuck
)
