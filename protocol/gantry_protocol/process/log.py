"""Logs as one line of ``key=value`` pairs per event, to stderr.

An event is a constant phrase with facts beside it, so that lines can be counted and searched; facts
that belong to everything a part says are bound once. Values are quoted when they hold blanks,
quotes or control characters, so one event is always one line, whatever a peer sent.
"""

import json
import logging
import sys
import time
from typing import Any, TextIO

_MAX_VALUE_CHARS = 1000
_PLAIN_CHARS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/,;%@+#[]{}()<>|*!?&~^$"
)
_ROOT = "gantry"


class Log:
    """A named source of events with bound facts.

    Args:
        logger: where records go.
        facts: pairs that every event of this log carries.
    """

    __slots__ = ("_facts", "_logger")

    def __init__(self, logger: logging.Logger, facts: dict[str, Any]) -> None:
        self._logger = logger
        self._facts = facts

    def bind(self, **facts: object) -> "Log":
        """A log whose events also carry ``facts``."""
        return Log(self._logger, {**self._facts, **facts})

    def debug(self, phrase: str, **facts: object) -> None:
        """Something for people who look for a fault."""
        self._emit(logging.DEBUG, phrase, facts)

    def info(self, phrase: str, **facts: object) -> None:
        """Something that changed."""
        self._emit(logging.INFO, phrase, facts)

    def warning(self, phrase: str, **facts: object) -> None:
        """Something that should not stay this way."""
        self._emit(logging.WARNING, phrase, facts)

    def error(self, phrase: str, **facts: object) -> None:
        """Something that failed and needs a person."""
        self._emit(logging.ERROR, phrase, facts)

    def exception(self, phrase: str, error: BaseException, **facts: object) -> None:
        """A programmer's error: the traceback follows the event."""
        if self._logger.isEnabledFor(logging.ERROR):
            pairs = {**self._facts, **facts, "error": error}
            self._logger.error(phrase, extra={"facts": pairs}, exc_info=error)

    def _emit(self, level: int, phrase: str, facts: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, phrase, extra={"facts": {**self._facts, **facts}})


class LineFormatter(logging.Formatter):
    """``time= level= component= source= event= …facts``, on one line."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record; a traceback, if there is one, follows on its own lines."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        pairs: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "component": self._component,
            "source": record.name.removeprefix(f"{_ROOT}."),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        line = " ".join(f"{key}={show(value)}" for key, value in pairs.items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def show(value: object) -> str:
    """``value`` as it stands in a line."""
    text = "null" if value is None else str(value)
    if isinstance(value, bool):
        text = text.lower()
    if len(text) > _MAX_VALUE_CHARS:
        text = text[:_MAX_VALUE_CHARS] + "…"
    if text and _PLAIN_CHARS.issuperset(text):
        return text
    return json.dumps(text, ensure_ascii=False)


def setup(component: str, *, level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of this process to ``stream`` (stderr); the last call wins.

    Libraries log warnings and worse through the same lines; Gantry's own parts log at ``level``.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_level(level)


def level() -> str:
    """The level at which Gantry's own parts log."""
    return logging.getLevelName(logging.getLogger(_ROOT).getEffectiveLevel()).lower()


def set_level(level: str) -> None:
    """Have Gantry's own parts log at ``level`` until the process ends, or it is set again."""
    logging.getLogger(_ROOT).setLevel(level.upper())


def get(name: str, **facts: object) -> Log:
    """The log of the part ``name``, with ``facts`` bound."""
    return Log(logging.getLogger(f"{_ROOT}.{name}"), dict(facts))
