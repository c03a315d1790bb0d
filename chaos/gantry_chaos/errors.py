"""Errors that a person can cause, each as one sentence: what, where and what to do."""

from __future__ import annotations

from gantry_protocol.errors import EXIT_TEMPORARY, CorruptionError, GantryError


class ManifestError(GantryError):
    """A manifest that does not say what Chaos Mesh understands, or more than is supported here.

    Attributes:
        path: the field, for example `spec.templates[2].networkChaos.loss.loss`; empty for the file.
    """

    def __init__(self, where: str, path: str, problem: str) -> None:
        super().__init__(f"{where}: {path}: {problem}." if path else f"{where}: {problem}.")
        self.path = path


class SelectionError(GantryError):
    """A selector that matches no pod, so that a fault would strike nothing and look survived."""

    exit_code = EXIT_TEMPORARY


class UnsupportedFaultError(GantryError):
    """A fault that cannot be injected into this kind of cluster."""


class InjectionError(GantryError):
    """A fault that could not be injected or healed; the text says what the command answered."""

    exit_code = EXIT_TEMPORARY


class JournalError(CorruptionError):
    """A journal of faults that cannot be read, so that nobody knows what has to be healed."""


class JournalInUseError(GantryError):
    """The journal of a run that has not ended."""

    exit_code = EXIT_TEMPORARY


class HistoryError(CorruptionError):
    """A history that is not what a recorder writes."""


class InterruptedRunError(GantryError):
    """A run that somebody ended before its time line."""

    exit_code = EXIT_TEMPORARY
