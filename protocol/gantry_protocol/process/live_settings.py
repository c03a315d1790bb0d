"""``SettingsWatch``: applies what the configuration file says of live settings while running.

The file is the one that the process began with, so a process that starts again has the values that
one that runs was given, and it outlives whoever wrote it. It is read once a second, and compared
with what was read before: a Kubernetes volume changes under the process. Flags and variables
outrank it, as at the start.

What it refuses: a file that could not be started with. Its settings stay out, all of them; those
before hold, and the reason is told. Settings that are not live, of which the component has a table,
wait for the next start.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gantry_protocol.errors import ConfigError
from gantry_protocol.process import log
from gantry_protocol.process.config import Settings, config_file, fingerprint, load_settings
from gantry_protocol.process.settings_word import SettingsWord

SettingsT = TypeVar("SettingsT", bound=Settings)

Otherwise = Callable[[Mapping[str, Any]], Mapping[str, Any]]

LOOK_S = 1.0
REASON_MAX_CHARS = 256

_log = log.get("settings")


def _nothing(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


class FileRead(NamedTuple, Generic[SettingsT]):
    """One look at the file.

    Attributes:
        print: of its bytes.
        wished: what it says; None where it cannot be started with.
        refused: why not; empty otherwise.
    """

    print: str
    wished: SettingsT | None
    refused: str = ""


def merged(running: SettingsT, wished: SettingsT, live: Collection[str]) -> SettingsT:
    """The settings of a running process with the live ones of a file."""
    values = {name: getattr(wished, name) for name in live}
    return type(running).model_validate(dict(running) | values)


def changed(before: SettingsT, after: SettingsT, live: Collection[str]) -> list[str]:
    """Names of the live settings that differ."""
    return sorted(name for name in live if getattr(before, name) != getattr(after, name))


class SettingsFile(Generic[SettingsT]):
    """The configuration file of this process, to be read again as it was read at the start.

    Args:
        model: of its settings.
        path: where it is.
        flags: of the command line.
        table: of the file.
        otherwise: what holds instead of the model's defaults, by what was given.
    """

    def __init__(
        self,
        model: type[SettingsT],
        path: Path,
        flags: Mapping[str, Any],
        table: str,
        otherwise: Otherwise = _nothing,
    ) -> None:
        self.path = path
        self._model = model
        self._flags = dict(flags) | {"config": path}
        self._table = table
        self._otherwise = otherwise

    @classmethod
    def of(
        cls,
        model: type[SettingsT],
        flags: Mapping[str, Any],
        table: str,
        otherwise: Otherwise = _nothing,
    ) -> "SettingsFile[SettingsT] | None":
        """The one that flags or the environment name; None if neither does."""
        path = config_file(flags)
        return None if path is None else cls(model, path, flags, table, otherwise)

    def read(self, known: str) -> FileRead[SettingsT] | None:
        """The file's settings, blocking; None if they are known, or it is away or changes now."""
        text = self._text()
        if text is None or fingerprint(text) == known:
            return None
        try:
            wished: SettingsT | None = load_settings(
                self._model, self._flags, table=self._table, otherwise=self._otherwise
            )
            refused = ""
        except ConfigError as error:
            wished, refused = None, str(error)[:REASON_MAX_CHARS]
        return FileRead(fingerprint(text), wished, refused) if self._text() == text else None

    def _text(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except OSError:
            return None


class SettingsWatch(Generic[SettingsT]):
    """See the module.

    Args:
        settings: what the process began with.
        live: names of those that may change.
        file: where others may come from; None where nothing ever changes.
        apply: called with all settings whenever one has changed.
        tell: called with the word to give of them.

    Attributes:
        settings: in force.
        changes: how often others were applied.
    """

    def __init__(
        self,
        settings: SettingsT,
        live: Collection[str],
        file: SettingsFile[SettingsT] | None,
        apply: Callable[[SettingsT], None],
        tell: Callable[[SettingsWord], None],
    ) -> None:
        self.settings = settings
        self.changes = 0
        self._live = live
        self._file = file
        self._apply = apply
        self._tell = tell
        self._word = SettingsWord()
        self._seen = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, and from now on."""
        if self._file is not None:
            self._task = asyncio.create_task(self._run(self._file))

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, file: SettingsFile[SettingsT]) -> None:
        while True:
            found = await asyncio.to_thread(file.read, self._seen)
            if found is not None:
                self.take(found)
            await asyncio.sleep(LOOK_S)

    def take(self, found: FileRead[SettingsT]) -> None:
        """Apply what was found, or say why not."""
        self._seen = found.print
        if found.wished is None:
            self._say(self._word._replace(refused=found.refused))
            _log.error("changed settings are refused, those before hold", reason=found.refused)
            return
        after = merged(self.settings, found.wished, self._live)
        names = changed(self.settings, after, self._live)
        if names:
            self._apply(after)
            self.settings = after
            self.changes += 1
            _log.info("settings are applied while running", names=",".join(names), file=found.print)
        self._say(SettingsWord(found.print))

    def _say(self, word: SettingsWord) -> None:
        self._word = word
        self._tell(word)
