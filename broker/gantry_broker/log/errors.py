"""Errors of a log that are neither damage (``CorruptionError``) nor a peer's bad bytes."""

from gantry_protocol.errors import EXIT_INTERNAL, GantryError


class LogFailedError(GantryError):
    """The disk refused a write or a sync; the process ends.

    After a failed fsync the kernel may drop the dirty pages and report success the next time
    (PostgreSQL's "fsyncgate", 2018), so nothing is retried: only a new start, which reads what is
    really there, can tell.
    """

    exit_code = EXIT_INTERNAL


class DiskFullError(GantryError):
    """No room for the record; the log is as it was before the call and stays usable."""


class DerivedLostError(GantryError):
    """The rows that follow from the log are damaged or cannot be written: open the store again."""

    exit_code = EXIT_INTERNAL


class CutRefusedError(GantryError):
    """Somebody asked to cut records that were confirmed, or to cut inside a record."""
