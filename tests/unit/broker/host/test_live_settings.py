"""Settings that are applied while running: what is taken, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.process.config import fingerprint
from gantry_protocol.process.live_settings import (
    SettingsFile,
    SettingsWatch,
    changed,
    merged,
)
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.settings.broker import LIVE

FLAGS = {"group": "g", "controllers": "127.0.0.1:1"}


def settings(**given: object) -> BrokerSettings:
    return BrokerSettings.model_validate(FLAGS | {"controllers": ["127.0.0.1:1"]} | given)


class Live:
    """A process that began with no settings of its own, and its file."""

    def __init__(self, path: Path) -> None:
        self.file = SettingsFile(BrokerSettings, path, FLAGS, "broker")
        self.path = path
        self.told = SettingsWord()
        self.applied: list[BrokerSettings] = []
        self.live = SettingsWatch(settings(), LIVE, self.file, self.applied.append, self.say)

    def say(self, word: SettingsWord) -> None:
        self.told = word

    def write(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")
        found = self.file.read(self.live._seen)
        if found is not None:
            self.live.take(found)

    @property
    def says(self) -> tuple[bool, str]:
        """Whether it says that it has what is written, and what it refuses."""
        return self.told.applied == fingerprint(self.path.read_bytes()), self.told.refused


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path / "gantry.toml")


def test_a_changed_value_is_applied_and_said(live: Live) -> None:
    live.write('retention_hours = "5"\n')
    assert [one.retention_hours for one in live.applied] == [5.0]
    assert live.says == (True, "")
    live.write('# nothing changed\nretention_hours = "5"\n')
    assert len(live.applied) == 1, "nothing to do"
    assert live.says == (True, "")
    live.write("")
    assert [one.retention_hours for one in live.applied] == [5.0, 72.0], "the default is back"


def test_what_needs_a_restart_is_left_alone(live: Live) -> None:
    live.write('heartbeat_timeout_ms = "9000"\nmax_batch_messages = "7"\n')
    (applied,) = live.applied
    assert (applied.max_batch_messages, applied.heartbeat_timeout_ms) == (7, 2500)
    live.write('heartbeat_timeout_ms = "8000"\nmax_batch_messages = "7"\n')
    assert len(live.applied) == 1
    assert live.says == (True, ""), "of what is applied while running it has all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('disk_take_percent = "99"\n', "must be below disk_refuse_percent"),
        ('quotas = "{"\n', "quotas do not read"),
        ('retention_hours = "-1"\n', "retention_hours"),
        ('no_such_setting = "1"\n', "unknown key"),
        ("retention_hours = \n", "is not TOML"),
    ],
)
def test_a_file_that_nobody_could_start_with_changes_nothing(
    live: Live, text: str, words: str
) -> None:
    live.write('max_batch_messages = "7"\n')
    before = live.told.applied
    live.write(f'max_batch_messages = "8"\n{text}')
    assert len(live.applied) == 1
    assert live.told.applied == before, "it still says what it has"
    assert words in live.told.refused
    assert len(live.told.refused) <= 256
    live.write('max_batch_messages = "8"\n')
    assert live.says == (True, "")
    assert live.applied[-1].max_batch_messages == 8


def test_a_file_that_is_away_or_known_says_nothing(live: Live) -> None:
    assert live.file.read("") is None
    live.write("")
    assert live.file.read(live.live._seen) is None
    live.path.unlink()
    assert live.file.read("") is None
    assert live.applied == []


def test_a_file_that_changes_while_it_is_read_is_read_again(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = iter([b"", b'retention_hours = "1"', b"", b""])
    live.path.write_text("")
    monkeypatch.setattr(live.file, "_text", lambda: next(texts))
    assert live.file.read("") is None
    found = live.file.read("")
    assert found is not None
    assert (found.print, found.refused) == (fingerprint(b""), "")


def test_flags_and_variables_outrank_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTRY_MAX_BATCH_MESSAGES", "9")
    path = tmp_path / "gantry.toml"
    path.write_text('max_batch_messages = "7"\ndrain_grace_s = "1"\nrepeat_keys = "2000"\n')
    flags = FLAGS | {"drain_grace_s": "2"}
    found = SettingsFile(BrokerSettings, path, flags, "broker").read("")
    assert found is not None
    assert found.wished is not None
    assert (found.wished.max_batch_messages, found.wished.drain_grace_s) == (9, 2.0)
    assert found.wished.repeat_keys == 2000
    assert merged(settings(), found.wished, LIVE).repeat_keys == settings().repeat_keys
    assert changed(settings(), found.wished, LIVE) == ["drain_grace_s", "max_batch_messages"]
