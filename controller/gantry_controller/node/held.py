"""Release after persist: what peers may learn only when a batch is on the disk.

The rule protected here: a message leaves when the batch it was held for is durable *and* the core
has been told so, never before, and in the order in which messages were held. A vote or an
acknowledgement that leaves earlier is a promise that a power cut takes back.

What is held is bounded, for a disk that hangs confirms nothing while heartbeats go on. Beyond the
bound the oldest messages are dropped: to Raft that is a network that lost them.
"""

from collections import deque

from gantry_controller.raft.messages import Message

HELD_MAX = 10_000


class Held:
    """Messages that wait for the disk.

    Attributes:
        dropped: messages beyond the bound, so far.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: deque[tuple[int, Message]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, batch: int, messages: list[Message]) -> None:
        """``messages`` wait for ``batch``; batches never fall from one call to the next."""
        assert not self._waiting or self._waiting[-1][0] <= batch, "batches become durable in order"
        self._waiting.extend((batch, message) for message in messages)
        while len(self._waiting) > HELD_MAX:
            self._waiting.popleft()
            self.dropped += 1

    def release(self, durable: int) -> list[Message]:
        """What waited for batches up to ``durable``, which are on the disk and reported."""
        messages: list[Message] = []
        while self._waiting and self._waiting[0][0] <= durable:
            messages.append(self._waiting.popleft()[1])
        return messages

    def clear(self) -> None:
        """Nothing of it leaves any more."""
        self._waiting.clear()
