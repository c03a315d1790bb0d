"""The groups of a cluster, given what controllers answered. Pure.

Answers may be late, doubled and out of order, since several controllers are asked at once. Of a
group's master the newest epoch counts (``Course``). A group that an answer leaves out may be newer
than that answer; it is let go of once it was left out for ``GONE_S`` without a break, or when
another group has its place. An answer that nothing is new counts as the one before it.
"""

from collections.abc import Iterable

from gantry_protocol.bodies.fronts import FrontGroupRow

GONE_S = 30.0


class Directory:
    """See the module.

    Args:
        ports: groups with this index and above are not served.

    Attributes:
        beyond: the groups that are not, by name.
    """

    def __init__(self, ports: int) -> None:
        """Nothing is known."""
        self.beyond: list[str] = []
        self._ports = ports
        self._places: dict[str, int] = {}  # by group
        self._missed_s: dict[str, float] = {}  # left out since

    @property
    def places(self) -> dict[str, int]:
        """By group: its index."""
        return dict(self._places)

    def heard(self, rows: Iterable[FrontGroupRow], now_s: float) -> None:
        """Take a controller's answer."""
        named = {row.name: row.index for row in rows}
        self.beyond = sorted(name for name, index in named.items() if index >= self._ports)
        served = {name: index for name, index in named.items() if index < self._ports}
        taken = set(served.values())
        for name, index in list(self._places.items()):
            if name in named:
                self._missed_s.pop(name, None)
                is_gone = name not in served
            else:
                missed_s = now_s - self._missed_s.setdefault(name, now_s)
                is_gone = missed_s >= GONE_S or index in taken
            if is_gone:
                del self._places[name]
        self._places.update(served)
        self._missed_s = {name: at for name, at in self._missed_s.items() if name in self._places}
