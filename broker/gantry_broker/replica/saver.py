"""Numbers the states to be saved, so that a late answer is not taken for the newest one."""

from gantry_broker.replica.effects import SaveState, StoredState


class Saver:
    """Hands out rising tokens; 0 is none."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        """Nothing saved yet."""
        self._token = 0

    def save(self, state: StoredState) -> SaveState:
        """An effect with a token of its own."""
        self._token += 1
        return SaveState(self._token, state)
