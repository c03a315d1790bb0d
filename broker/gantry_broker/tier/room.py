"""Room for packs: the memory that those of all groups of a process may take at once.

Rules protected: whoever asked first is first, so that a large pack is not passed by for ever; a
pack larger than all the room goes alone. What it refuses: nothing; who finds none waits, without a
deadline, since whoever has some gives it back at a deadline of the store.
"""

import asyncio
from collections import deque


class PackRoom:
    """See the module.

    Attributes:
        used_bytes: taken now.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Nothing is taken."""
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """The number of those who wait; a group waits once."""
        return len(self._waiting)

    async def take(self, size_bytes: int) -> None:
        """Take so much, once it is there; nothing, if that is cancelled."""
        if not self._waiting and self._fits(size_bytes):
            self.used_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
                self.give_back(0)  # it may have kept others waiting
            else:
                self.give_back(size_bytes)
            raise

    def give_back(self, size_bytes: int) -> None:
        """So much is free again."""
        self.used_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, turn = self._waiting.popleft()
            self.used_bytes += wanted
            turn.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self._limit_bytes
