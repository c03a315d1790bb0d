"""Numbers the states to be saved, so that a late answer is not taken for the newest one."""

from gantry_broker.replica.effects import SaveState
from gantry_broker.replica.lineage import StoredState


class Saver:
    """Hands out rising tokens; 0 is none.

    Attributes:
        saved: the newest token whose state is durable; states are saved in their order.
    """

    __slots__ = ("_token", "saved")

    def __init__(self) -> None:
        """Nothing saved yet."""
        self.saved = 0
        self._token = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a state is on its way to the disk."""
        return self.saved < self._token

    def save(self, state: StoredState) -> SaveState:
        """An effect with a token of its own."""
        self._token += 1
        return SaveState(self._token, state)

    def done(self, token: int) -> None:
        """The state that carried ``token`` is durable."""
        self.saved = max(self.saved, token)
