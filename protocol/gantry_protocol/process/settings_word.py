"""The word of a process about settings that it applies while running."""

from typing import NamedTuple


class SettingsWord(NamedTuple):
    """The word of a process about its settings.

    Attributes:
        applied: fingerprint of the configuration file whose settings are in force; empty before
            one was read, or where there is none.
        refused: why a newer file is not; empty if it is.
    """

    applied: str = ""
    refused: str = ""
