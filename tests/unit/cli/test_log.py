"""`gantry log`: what it prints, and the exit codes scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gantry_broker.member import lineage_file
from gantry_broker.replica import Lineage, StoredState
from gantry_cli.commands.log import log as command
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support import logs


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Twelve records in two files; the second half was written in epoch 5."""
    directory = tmp_path / "store" / "commitlog"
    directory.parent.mkdir(parents=True)
    log = logs.filled(directory, 30)
    log.raise_confirm_floor(log.flushed)
    half = logs.boundaries(log)[15]
    log.close()
    lineage = Lineage([EpochEntry(Epoch(3), Offset(0)), EpochEntry(Epoch(5), half)])
    lineage_file.save(tmp_path, StoredState(Epoch(5), lineage, log.end))
    return tmp_path


def _run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def _rows(*words: object) -> list[dict]:
    result = _run("dump", *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_records_come_with_their_epoch_and_properties(volume: Path) -> None:
    rows = _rows(volume)
    records = [one for one in rows if "blank" not in one]
    assert len(records) == 30
    assert [one["queueOffset"] for one in records] == list(range(30))
    assert [one["epoch"] for one in rows] == [3] * 15 + [5] * (len(rows) - 15)
    assert records[0]["properties"] == {"TAGS": "TagA", "KEYS": "k"}
    assert len(rows) > len(records), "the blank at the end of a file is shown"


def test_a_dump_is_narrowed(volume: Path) -> None:
    everything = _rows(volume)
    start, end = everything[4]["offset"], everything[9]["offset"]
    assert _rows(volume, "--from", start - 1, "--to", end) == everything[4:9]
    assert _rows(volume, "--limit", 3) == everything[:3]
    assert _rows(volume, "--topic", "elsewhere") == []
    assert _rows(volume, "--topic", "T", "--queue", 1) == []


def test_people_read_columns(volume: Path) -> None:
    heading, first, *_ = _run("dump", volume, "--body").output.splitlines()
    assert heading.split()[:4] == ["OFFSET", "EPOCH", "BYTES", "STORED"]
    assert first.split()[:3] == ["0", "3", str(logs.RECORD_BYTES - 6)]
    assert "1970-01-01 00:00:01.000" in first
    assert "TagA  k  '\\x01'" in first


def test_a_sound_log_is_verified(volume: Path) -> None:
    result = _run("verify", volume)
    assert result.exit_code == 0
    assert "sound; [0, " in result.output
    assert "30 records" in result.output


def test_a_flipped_byte_is_named_and_the_exit_code_is_one(volume: Path) -> None:
    path = next((volume / "store" / "commitlog").glob("0*0"))
    data = bytearray(path.read_bytes())
    data[200] ^= 4
    path.write_bytes(data)
    result = _run("verify", volume, "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.output)["damage"]
    assert finding["file"] == str(path)
    assert finding["position"] <= 200
    dumped = _run("dump", volume)
    assert dumped.exit_code == 1
    assert str(path) in dumped.output


def test_a_lineage_that_does_not_fit_is_damage(volume: Path) -> None:
    stored = lineage_file.load(volume)
    lineage_file.save(volume, StoredState(stored.epoch, stored.lineage, Offset(stored.confirm + 1)))
    result = _run("verify", volume)
    assert result.exit_code == 1
    assert "lineage.json" in result.output


def test_a_volume_without_lineage_is_a_note(volume: Path) -> None:
    (volume / lineage_file.FILE).unlink()
    result = _run("verify", volume)
    assert result.exit_code == 0
    assert "note: " in result.output


def test_a_directory_without_a_log_is_one_sentence(tmp_path: Path) -> None:
    result = _run("verify", tmp_path)
    assert result.exit_code != 0
    assert "holds no commit log" in str(result.exception)
