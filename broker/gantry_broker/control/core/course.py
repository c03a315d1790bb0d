"""The master to lead clients to, given what controllers answered, and when to ask again.

Answers may be late, doubled and out of order, since several controllers are asked at once. Only an
answer of the newest epoch heard counts, so nobody is ever led back to a former master. While there
is doubt about the master (none is known, or a connection to it was lost or not made) all
controllers are asked every ``FAST_S``; otherwise one of them every ``CALM_S``, since the connection
to a master that stands still is not lost.

Pure: the time comes in as an argument, and nothing is sent from here.
"""

FAST_S = 0.05  # a failover takes 0.1 s to 0.2 s, and clients wait
SLOW_S = 0.25  # once that has not helped for
FAST_FOR_S = 10.0  # so long: no client waits for a master any more
CALM_S = 1.0
LOOK_S = 0.25  # between two looks whether the master answers; one that stands still ends nothing
DOUBT_S = 1.0  # after the last reason for it; whoever cannot reach the master gives them all along


class Course:
    """The place that clients are led to.

    Attributes:
        epoch: the newest one heard of; None before the first answer.
        address: of its master; empty while it has none.
        known: there was a master once.
        stale: answers of an older epoch.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self.epoch: int | None = None
        self.address = ""
        self.known = False
        self.stale = 0
        self._doubted_s: float | None = None  # since when
        self._doubt_ends_s = 0.0
        self._said_bytes = 0
        self._was_owing = False

    def heard(self, epoch: int, address: str) -> bool:
        """A controller's answer; whether it changes where clients are led."""
        if self.epoch is not None and epoch < self.epoch:
            self.stale += 1
            return False
        if (epoch, address) == (self.epoch, self.address):
            return False
        self.epoch, self.address = epoch, address
        if address:
            self.known = True
            self._doubted_s = None
        return True

    def doubt(self, now_s: float) -> None:
        """The master was lost, or could not be reached."""
        if not self.is_in_doubt(now_s):
            self._doubted_s = now_s
        self._doubt_ends_s = now_s + DOUBT_S

    def looked(self, said_bytes: int, is_owing: bool, now_s: float) -> None:
        """Every ``LOOK_S``: doubt a master that has answered nothing since the last look.

        Args:
            said_bytes: what clients were told so far.
            is_owing: whether the master owes an answer; one to a pull may take long.
            now_s: the time.
        """
        if self._was_owing and is_owing and said_bytes == self._said_bytes:
            self.doubt(now_s)
        self._said_bytes, self._was_owing = said_bytes, is_owing

    def is_in_doubt(self, now_s: float) -> bool:
        """Whether there may be another master than the one that is known."""
        return not self.address or (self._doubted_s is not None and now_s < self._doubt_ends_s)

    def next_ask_s(self, asked_s: float, now_s: float) -> float:
        """The time to ask, if the last time was ``asked_s``."""
        if not self.is_in_doubt(now_s):
            return asked_s + CALM_S
        if self._doubted_s is None:
            self._doubted_s = now_s
        return asked_s + (FAST_S if now_s - self._doubted_s < FAST_FOR_S else SLOW_S)
