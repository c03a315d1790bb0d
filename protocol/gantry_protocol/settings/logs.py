"""Settings of logs: of every process that people can tell how much to write."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gantry_protocol.process.config import Settings


def lower(value: object) -> object:
    """Text in lower case: a resource says `Delete` where files and variables say `delete`."""
    return value.lower() if isinstance(value, str) else value


class LoggedProcess(Settings):
    """The log of a process."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = (
        Field(default="info", description="The least that is logged.")
    )
