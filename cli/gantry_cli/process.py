"""Process entries: settings from all layers, logs, then the component's `serve` until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gantry_protocol.process import log
from gantry_protocol.process.config import Settings, load_settings
from gantry_protocol.process.runtime import run
from gantry_protocol.settings.logs import LoggedProcess

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Mapping

SettingsT = TypeVar("SettingsT", bound=Settings)


def run_process(
    component: str,
    model: type[SettingsT],
    serve: Callable[[SettingsT, asyncio.Event], Coroutine[Any, Any, None]],
    flags: Mapping[str, Any],
    *,
    before: Callable[[SettingsT], None] = lambda settings: None,
    otherwise: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda given: {},
) -> int:
    """Run one component in this process; returns its exit code.

    Args:
        component: its name, which is also its table in a configuration file.
        model: its settings.
        serve: runs until the stop event is set.
        flags: what the command line gave.
        before: called with the settings, while there is neither a thread nor an event loop.
        otherwise: what holds instead of the settings' defaults, by what was given.

    Raises:
        ConfigError: a setting is wrong or missing.
    """
    settings = load_settings(model, flags, table=component, otherwise=otherwise)
    before(settings)
    log.setup(component, level=_level(settings))
    return run(lambda stop: serve(settings, stop))


def _level(settings: Settings) -> str:
    return settings.log_level if isinstance(settings, LoggedProcess) else "info"
