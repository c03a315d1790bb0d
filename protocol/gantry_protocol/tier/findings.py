"""Findings about a tier: a fault, or a fact worth knowing, the same from whoever reads it.

A ``fault`` is something that must not be; a ``note`` is something to know: an object that no
version names is what an interrupted upload leaves behind, neither data nor damage. Each names the
object and, where it has one, the byte in it or the offset in the log.
"""

import msgspec

from gantry_protocol.tier.damage import (
    ForeignObject,
    MissingObject,
    NewerObject,
    TierObjectError,
)

FAULT, NOTE = "fault", "note"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a judgement.

    Attributes:
        grade: fault or note.
        rule: T1 … T11, H2, tail as in docs/tier-format.md; T4 for objects, T6 for what lies above
            the confirm offset; queue, foreign, newer, orphan.
        object: the whole key.
        reason: got and expected.
        byte: where in the object; None if it is not about a byte.
        offset: the offset in the log; None if it is not about one.
    """

    grade: str
    rule: str
    object: str
    reason: str
    byte: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        at = "" if self.byte is None else f" byte {self.byte}"
        at += "" if self.offset is None else f" offset {self.offset}"
        return f"{self.grade} {self.rule}: {self.object}{at}: {self.reason}"


def of_object(error: TierObjectError, *, offset: int | None = None) -> Finding:
    """The fault of one object: rule T4, but ``newer`` and ``foreign`` in their own words.

    Args:
        error: what its reader said.
        offset: in the log, where the object's part of it begins.
    """
    if isinstance(error, MissingObject):
        return Finding(FAULT, "T4", error.key, "it is missing", offset=offset)
    rule = "T4"
    if isinstance(error, NewerObject):
        rule = "newer"
    elif isinstance(error, ForeignObject):
        rule = "foreign"
    return Finding(FAULT, rule, error.key, error.reason, byte=error.offset, offset=offset)


def stray(prefix: str) -> Finding:
    """For a folder where a group's could be, and that is none."""
    return Finding(FAULT, "foreign", prefix, "no broker group has such a prefix")


def sort_key(finding: Finding) -> tuple[bool, str, int]:
    """Faults first, then by object and byte."""
    return finding.grade != FAULT, finding.object, finding.byte or 0
