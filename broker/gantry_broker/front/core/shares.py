"""The member that a front reads from next: the one from which it has read least lately. Pure.

Reads that are under way count as much as those before them, so that readers that come together do
not all go to one place. The master is the last of equals, since it has the writes as well.
"""

from collections.abc import Iterable

from gantry_protocol.bodies.route import MASTER_ID

HALF_S = 10.0  # after which what was read counts half


class Shares:
    """See the module.

    Attributes:
        read_bytes: by broker id, what was read there, ever; 0 is the master.
    """

    def __init__(self) -> None:
        """Nothing was read."""
        self.read_bytes: dict[int, int] = {}
        self._lately: dict[int, float] = {}
        self._at_s = 0.0  # of ``_lately``
        self._under_way: dict[int, int] = {}
        self._usual_bytes = 1.0  # of one read, about

    def pick(self, able: Iterable[int]) -> int:
        """One of the members that may be read from."""
        return min(able, key=lambda member: (self._load(member), member == MASTER_ID, member))

    def asked(self, member: int) -> None:
        """A read was sent there."""
        self._under_way[member] = self._under_way.get(member, 0) + 1

    def answered(self, member: int, size_bytes: int, now_s: float) -> None:
        """It was answered with so much; 0 where another member has to be asked."""
        self._under_way[member] -= 1
        if not size_bytes:
            return
        self._fade(now_s)
        self.read_bytes[member] = self.read_bytes.get(member, 0) + size_bytes
        self._lately[member] = self._lately.get(member, 0.0) + size_bytes
        self._usual_bytes += (size_bytes - self._usual_bytes) / 8

    def _load(self, member: int) -> float:
        waiting = self._under_way.get(member, 0)
        return self._lately.get(member, 0.0) + waiting * self._usual_bytes

    def _fade(self, now_s: float) -> None:
        kept = 0.5 ** (max(now_s - self._at_s, 0.0) / HALF_S)
        self._at_s = now_s
        self._lately = {member: size * kept for member, size in self._lately.items()}
