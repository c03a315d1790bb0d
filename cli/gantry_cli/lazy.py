"""Command groups that know their commands by name and import them when they run.

`gantry --help` is the first thing a person types: it must answer at once, so it may not import a
broker, a controller and an operator to print eleven names. The help line of each command
therefore stands in the table; a test compares it with the command's own.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandEntry(NamedTuple):
    """One command: where it is (`module:attribute`), its help line, the heading it stands under."""

    name: str
    target: str
    help: str
    section: str = "Commands"
    local: bool = False  # needs the cluster of processes, which is a distribution of its own


def require_local(instead: str = "") -> None:
    """Refuse what needs the cluster of processes where it is not installed.

    Args:
        instead: what else to do, as the end of a sentence.

    Raises:
        GantryError: one sentence that says how to get it.
    """
    if importlib.util.find_spec("gantry_local") is None:
        from gantry_protocol.errors import GantryError

        raise GantryError(
            "The cluster of processes is not installed: pip install 'gantry[local]'"
            f"{instead and ', or '}{instead}."
        )


class LazyGroup(click.Group):
    """A group whose commands are imported when one of them is asked for."""

    def __init__(
        self, *args: object, entries: Sequence[CommandEntry] = (), **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, unchanged
        self.entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table, which is the order of the help text."""
        return [*self.entries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command behind `cmd_name`; None when there is none."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        if entry.local:
            require_local()
        module, _, attribute = entry.target.partition(":")
        gc.disable()  # nothing of an import is garbage, and to look for some is an eighth of it
        try:
            command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        assert isinstance(command, click.Command), f"{entry.target} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings, without importing them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for entry in self.entries.values():
            sections.setdefault(entry.section, []).append((entry.name, entry.help))
        width = max(map(len, self.entries), default=0)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])
