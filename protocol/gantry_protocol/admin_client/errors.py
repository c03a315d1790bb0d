"""Errors that controllers answer instead of doing what they were asked."""

from __future__ import annotations


class AdminError(Exception):
    """A request to the controllers that was not carried out; the text is for people."""


class QuorumUnreachableError(AdminError):
    """No controller that may answer was found; whether the request took effect is unknown."""


class AdminRefusedError(AdminError):
    """The leader refused the request.

    Attributes:
        status: HTTP status.
        code: the stable code of the refusal.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
