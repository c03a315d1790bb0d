"""Release after persist: what peers may learn only when a batch is on the disk.

The rule protected here: a message leaves when the batch it was held for is durable *and* the core
has been told so, never before, and in the order in which messages were held. A vote or an
acknowledgement that leaves earlier is a promise that a power cut takes back. Files of older
snapshots follow the same rule: they go when the marker of a newer one is durable.

A driver brings every ``Ready`` here and sends what ``hand_out`` returns, before or after it has
given the batch to the disk; it passes on the disk's word with ``confirmed``, from wherever that
comes, and calls ``report`` at the beginning of a pass. It decides nothing.

What is held is bounded, for a disk that hangs confirms nothing while heartbeats go on. Beyond the
bound the oldest messages are dropped: to Raft that is a network that lost them.
"""

from collections import deque
from collections.abc import Callable

from gantry_protocol.types import Index

from gantry_controller.raft.messages import Message
from gantry_controller.raft.ready import Ready

HELD_MAX = 10_000


class AfterPersist:
    """Messages and markers that wait for the disk; see the module. ``len`` counts messages.

    Attributes:
        dropped: messages beyond the bound, so far.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._messages: deque[tuple[int, Message]] = deque()
        self._markers: deque[tuple[int, Index]] = deque()
        self._confirmed = 0  # newest batch the disk has confirmed
        self._reported = 0  # newest batch the core knows to be durable; <= _confirmed

    def __len__(self) -> int:
        return len(self._messages)

    def confirmed(self, batch: int) -> None:
        """The disk has everything up to ``batch``. Nothing leaves yet: ``report`` comes first."""
        self._confirmed = batch

    def report(self, persisted: Callable[[int], None]) -> Index | None:
        """Tell the core, whose ``persisted`` is called, of each batch that is durable by now.

        Returns:
            The newest snapshot whose marker became durable: older files may go. None if none did.
        """
        for batch in range(self._reported + 1, self._confirmed + 1):
            # One by one, for the core keeps a record per batch: what an earlier one made durable
            # (a vote for itself) may win an election that a later one takes for granted.
            persisted(batch)
        self._reported = self._confirmed
        newest: Index | None = None
        while self._markers and self._markers[0][0] <= self._reported:
            newest = self._markers.popleft()[1]
        return newest

    def hand_out(self, ready: Ready) -> list[Message]:
        """Hold back of ``ready`` what waits for its batch; returns what leaves now, in order.

        ``messages_now`` go first: they wait for no disk, this node's least of all (a leader's
        appends travel while it writes them itself, thesis §10.2.1).
        """
        waiting, batch = self._messages, ready.batch
        assert not waiting or waiting[-1][0] <= batch, "batches become durable in order"
        self._markers.extend((batch, marker.index) for marker in ready.markers)
        # All of them pass through the queue, even those whose batch is durable already (a Ready
        # that writes nothing names the batch before it): none may overtake an earlier one.
        waiting.extend((batch, message) for message in ready.messages_after_persist)
        while len(waiting) > HELD_MAX:
            waiting.popleft()
            self.dropped += 1
        return [*ready.messages_now, *self.release()]

    def release(self) -> list[Message]:
        """Messages whose batch is durable, in the order in which they were held."""
        leaving: list[Message] = []
        # What was reported, not what was confirmed: the disk's word may come in the middle of a
        # pass, and what leaves before the core has heard it speaks for a core that has not.
        while self._messages and self._messages[0][0] <= self._reported:
            leaving.append(self._messages.popleft()[1])
        return leaving

    def clear(self) -> None:
        """The node stops: nothing of it leaves any more."""
        self._messages.clear()
