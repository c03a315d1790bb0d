"""One attachment to one master: how a replica of an epoch gets and keeps the master's log.

The states, in order; a lost link goes back to ``CONNECTING`` after a short back-off::

    CONNECTING  the link is open: Hello           -> GREETING
    GREETING    Truncate, something to cut        -> CUTTING
    GREETING    Truncate, nothing to cut          -> SAVING
    CUTTING     the cut is durable                -> SAVING
    SAVING      epoch and lineage are durable     -> STREAMING

Rules protected:

* The cut and the new epoch are durable before the first acknowledgement (H8).
* An acknowledgement covers flushed bytes only, and only bytes of this attachment's log.
* A line of the lineage is durable before the first byte written under it: bytes that arrive for a
  new line are held until it is saved, in a bounded queue; the master's window keeps it short.
* ``confirm`` here is at most what is flushed here, so that whoever is promoted starts from a
  confirm offset its own disk can vouch for.

What it refuses: messages of another epoch or another start of the master, bytes that do not begin
at the end of the log, and a cut below confirm.
"""

from collections import deque
from enum import Enum, auto

from gantry_protocol.types import BrokerId, Offset

from gantry_broker.replica.effects import (
    AppendLog,
    AskView,
    CloseLink,
    ConfirmMoved,
    CutLog,
    Effect,
    OpenLink,
    Send,
    Stuck,
)
from gantry_broker.replica.handshake import continued, lineage_after, refuse_truncate
from gantry_broker.replica.lineage import Lineage, LineageError, LogFacts
from gantry_broker.replica.messages import Ack, Append, Farewell, Hello, Truncate
from gantry_broker.replica.saver import Saver
from gantry_broker.replica.values import ControllerView, Limits

REOPEN_FIRST_MS = 20
REOPEN_LAST_MS = 200


class Stage(Enum):
    """The progress of the attachment."""

    CONNECTING = auto()
    GREETING = auto()
    CUTTING = auto()
    SAVING = auto()
    STREAMING = auto()


class Following:
    """A replica's side of one (epoch, master).

    Attributes:
        link: the link to the master, from the attempt to connect on.
        in_sync: whether the master counts on this replica; None until it has said so on this link.
        draining: this replica is about to leave.
        has_room: its disk is far from full.
    """

    def __init__(
        self,
        me: BrokerId,
        incarnation: str,
        view: ControllerView,
        log: LogFacts,
        saver: Saver,
        limits: Limits,
        now_ms: int,
    ) -> None:
        """Prepare to follow the master of ``view``; the first tick or ``reopen`` connects."""
        self.view = view
        self.stage = Stage.CONNECTING
        self.link: int | None = None
        self.in_sync: bool | None = None
        self.draining = False
        self.has_room = False
        self._me = me
        self._incarnation = incarnation
        self._log = log
        self._saver = saver
        self._limits = limits
        self._reopen_at_ms = now_ms
        self._reopen_ms = REOPEN_FIRST_MS
        self._heard_ms = now_ms
        self._master_confirm = log.confirm
        self._acked: Offset | None = None
        self._next_lineage: Lineage | None = None
        self._held: deque[Append] = deque()
        self._saving_token = 0

    # ---- the link

    def reopen(self, link: int, now_ms: int) -> list[Effect]:
        """Connect when the back-off has passed; ``link`` is the number to use."""
        if self.link is not None or now_ms < self._reopen_at_ms:
            return []
        self.link = link
        self._heard_ms = now_ms
        return [OpenLink(link, self.view.master_ha_address)]

    def opened(self, now_ms: int) -> list[Effect]:
        """The link is connected: say who we are."""
        assert self.link is not None
        self.stage = Stage.GREETING
        self._heard_ms = now_ms
        hello = Hello(
            epoch=self.view.master_epoch,
            broker_id=self._me,
            incarnation=self._incarnation,
            log_start=self._log.log_start,
            end=self._log.end,
            lineage=self._log.lineage.entries,
            draining=self.draining,
        )
        return [Send(self.link, hello)]

    def closed(self, now_ms: int) -> list[Effect]:
        """The link is gone, or never came to be; the master may be too, so ask who is."""
        self._detach(now_ms)
        return [AskView("the link to the master is closed")]

    def _detach(self, now_ms: int, wait_ms: int = 0) -> None:
        self.link = None
        self.stage = Stage.CONNECTING
        self.in_sync = None
        self._acked = None
        self._held.clear()
        self._next_lineage = None
        self._saving_token = 0
        self._reopen_at_ms = now_ms + max(self._reopen_ms, wait_ms)
        self._reopen_ms = min(self._reopen_ms * 2, REOPEN_LAST_MS)

    def leave(self, reason: str, now_ms: int, wait_ms: int = 0) -> list[Effect]:
        """End the link for something the other side did; not again for ``wait_ms``."""
        assert self.link is not None
        link = self.link
        self._detach(now_ms, wait_ms)
        farewell = Farewell(epoch=self.view.master_epoch, reason=reason)
        return [Send(link, farewell), CloseLink(link, reason), AskView(reason)]

    # ---- the handshake

    def truncate(self, message: Truncate, now_ms: int) -> list[Effect]:
        """The master's answer to Hello."""
        self._heard_ms = now_ms
        expected = (self.view.master_epoch, self.view.master_incarnation)
        if self.stage is not Stage.GREETING or (message.epoch, message.incarnation) != expected:
            return self.leave(f"a truncation of epoch {message.epoch} out of turn", now_ms)
        # Judged by our own confirm offset, whatever the master believes (H8): what is below it may
        # have been acknowledged. Leaving and calling again would only end here again, so it sticks.
        wrong = refuse_truncate(message, self._log)
        if wrong is not None:
            if message.point < self._log.confirm:
                return [*self.leave(wrong, now_ms), Stuck("DivergedBelowConfirm", wrong)]
            return self.leave(wrong, now_ms)
        # The lineage that fits the cut log is made before anything is cut: a contradiction must
        # leave the log as it is. It replaces ours once the cut is durable (``cut_done``): until
        # then ours describes what a restart would find.
        try:
            self._next_lineage = lineage_after(message, self._log)
        except LineageError as error:
            return self.leave(f"the master's lineage contradicts ours: {error}", now_ms)
        if message.point == self._log.end and not message.reset:
            return self._save_epoch()
        self.stage = Stage.CUTTING
        return [CutLog(message.point, message.reset)]

    def cut_done(self) -> list[Effect]:
        """The cut of this attachment is durable; now the epoch."""
        return self._save_epoch() if self.stage is Stage.CUTTING else []

    def _save_epoch(self) -> list[Effect]:
        assert self._next_lineage is not None
        self.stage = Stage.SAVING
        self._log.lineage, self._next_lineage = self._next_lineage, None
        save = self._saver.save(self._log.stored())
        self._saving_token = save.token
        return [save]

    def saved(self, token: int, now_ms: int) -> list[Effect]:
        """A state is durable: the handshake is complete, or held bytes may be written."""
        if token != self._saving_token:
            return []
        self._saving_token = 0
        if self.stage is Stage.SAVING:
            # The first acknowledgement vouches for our log as a prefix of the master's. It leaves
            # once cut and lineage are both durable, in this order: a start in between finds the cut
            # log under a lineage that is cut to its end (``Lineage.recovered``).
            self.stage = Stage.STREAMING
            self._reopen_ms = REOPEN_FIRST_MS
            return self._acknowledge()
        effects: list[Effect] = []
        held, self._held = self._held, deque()
        for message in held:
            effects += self._try_take(message, now_ms)
        return effects

    # ---- the stream

    def append(self, message: Append, now_ms: int) -> list[Effect]:
        """Bytes of the log, or a heartbeat."""
        self._heard_ms = now_ms
        if message.epoch != self.view.master_epoch or self.stage is not Stage.STREAMING:
            return self.leave(f"bytes of epoch {message.epoch} out of turn", now_ms)
        expected = self._log.end if not self._held else _end(self._held[-1])
        if message.offset != expected:
            return self.leave(f"bytes at {message.offset}, expected {expected}", now_ms)
        if message.entry.start_offset > message.offset:
            return self.leave(f"epoch {message.entry.epoch} does not cover its bytes", now_ms)
        if len(self._held) >= self._limits.held_appends:
            return self.leave("more bytes than may wait for the lineage", now_ms)
        return self._try_take(message, now_ms)

    def _try_take(self, message: Append, now_ms: int) -> list[Effect]:
        if self.link is None:
            return []  # an earlier message of the same burst ended the link
        try:
            return self._take(message)
        except LineageError as error:
            return self.leave(f"the master's lineage contradicts ours: {error}", now_ms)

    def _take(self, message: Append) -> list[Effect]:
        """Write one message, or hold it until the line of the lineage it belongs to is durable."""
        self.in_sync = message.in_sync
        if self._saving_token:
            self._held.append(message)
            return []
        if self._log.lineage.last != message.entry:
            self._log.lineage = continued(self._log.lineage, message.entry)
            save = self._saver.save(self._log.stored())
            self._saving_token = save.token
            self._held.append(message)
            return [save]
        effects = self._learn_confirm(message.confirm)
        if not message.data:
            return effects + self._acknowledge()
        self._log.appended(_end(message))
        return [AppendLog(message.offset, message.data), *effects]

    def flushed(self) -> list[Effect]:
        """More of the log is on the disk."""
        effects: list[Effect] = []
        if self.stage is Stage.STREAMING and self._acked != self._log.flushed:
            effects += self._acknowledge()  # first: the master waits for it
        return effects + self._learn_confirm(self._master_confirm)

    def _acknowledge(self) -> list[Effect]:
        assert self.link is not None
        self._acked = self._log.flushed
        ack = Ack(
            epoch=self.view.master_epoch,
            flushed_end=self._log.flushed,
            draining=self.draining,
            has_room=self.has_room,
        )
        return [Send(self.link, ack)]

    def _learn_confirm(self, confirm: Offset) -> list[Effect]:
        """The master's confirm, as far as our own disk can vouch for it."""
        self._master_confirm = max(self._master_confirm, confirm)
        if not self._log.confirm_up_to(self._master_confirm):
            return []
        return [ConfirmMoved(self._log.confirm)]

    # ---- time

    def silent_ms(self, now_ms: int) -> int:
        """The time since the master was heard of."""
        return now_ms - self._heard_ms

    def begin_drain(self) -> list[Effect]:
        """Tell the master not to wait for us."""
        self.draining = True
        return self._acknowledge() if self.stage is Stage.STREAMING else []

    def excuse(self, pause_ms: int) -> None:
        """This process stood still; that is no silence of the master."""
        self._heard_ms += pause_ms

    def tick(self, now_ms: int) -> list[Effect]:
        """Leave a silent master's link."""
        silent_ms = self.silent_ms(now_ms)
        if self.link is None or silent_ms < self._limits.silence_ms:
            return []
        return self.leave(f"nothing heard for {silent_ms} ms", now_ms)


def _end(message: Append) -> Offset:
    return Offset(message.offset + len(message.data))
