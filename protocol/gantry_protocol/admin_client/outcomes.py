"""Outcomes of a question that brought no view: values, since plans decide what to do then."""

from __future__ import annotations

import msgspec


class Unreachable(msgspec.Struct, frozen=True):
    """The controllers could not be asked; `reason` says why, for people."""

    reason: str


class NotDeclared(msgspec.Struct, frozen=True):
    """The controllers answered, and do not know the group."""
