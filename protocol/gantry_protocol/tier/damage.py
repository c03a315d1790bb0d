"""Damage of objects of the tier; each is one sentence with object, place and reason.

Rule protected: a reader that meets any of these changes and deletes nothing. The classes are apart
because people do different things about them: fetch a copy, correct a prefix, upgrade.
"""

from gantry_protocol.errors import GantryError


class TierObjectError(GantryError):
    """An object that cannot be used.

    Attributes:
        key: the object.
        offset: byte inside the object where the trouble begins.
        reason: got and expected, in a few words.
    """

    def __init__(self, key: str, offset: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key
        self.offset = offset
        self.reason = reason


class DamagedObject(TierObjectError):  # noqa: N818 - a plain word reads better where it is caught
    """Bytes that cannot be what was written."""

    def __init__(self, key: str, offset: int, reason: str) -> None:
        super().__init__(key, offset, reason, f"{key} is damaged at byte {offset}: {reason}.")


class TruncatedObject(TierObjectError):  # noqa: N818 - see above
    """Fewer bytes than were written; ``offset`` is where it ends."""

    def __init__(self, key: str, offset: int, reason: str) -> None:
        super().__init__(key, offset, reason, f"{key} is cut short at byte {offset}: {reason}.")


class ForeignObject(TierObjectError):  # noqa: N818 - see above
    """A sound object, or a key, that is not the one this place is for."""

    def __init__(self, key: str, offset: int, reason: str) -> None:
        super().__init__(
            key,
            offset,
            reason,
            f"{key} is not what belongs there (byte {offset}): {reason}; "
            f"give every broker group a prefix of its own.",
        )


class NewerObject(TierObjectError):  # noqa: N818 - see above
    """A format, class or operation that a later version of this software introduced."""

    def __init__(self, key: str, offset: int, reason: str) -> None:
        super().__init__(
            key,
            offset,
            reason,
            f"{key} is of a newer version (byte {offset}): {reason}; use the one that wrote it.",
        )


class MissingObject(TierObjectError):  # noqa: N818 - see above
    """The manifest lists it, and it is not there."""

    def __init__(self, key: str) -> None:
        super().__init__(key, 0, "missing", f"{key} is missing, though the manifest lists it.")


class ChainError(GantryError):
    """A sound manifest version that cannot follow the one before it.

    Attributes:
        version: its number.
        reason: the rule, with got and expected.
    """

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(f"The manifest is broken at version {version}: {reason}.")
        self.version = version
        self.reason = reason
