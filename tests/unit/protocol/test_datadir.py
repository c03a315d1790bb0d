"""Data directories: whose they are, and that nobody shares one."""

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_protocol.errors import CorruptionError, DataDirError, LockHeldError
from gantry_protocol.process.datadir import IDENTITY_FILE, LOCK_FILE, DataDir
from gantry_protocol.process.files import atomic_write, make_directory

IDENTITY = {"clusterUid": "u-1", "nodeId": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "data"
    DataDir.open(path, "controller", IDENTITY).close()
    return path


def test_an_empty_directory_becomes_ours_and_stays_it(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with DataDir.open(path, "controller", IDENTITY) as first:
        assert first.created
        assert sorted(entry.name for entry in path.iterdir()) == [LOCK_FILE, IDENTITY_FILE]
    with DataDir.open(path, "controller", IDENTITY) as second:
        assert not second.created
        assert second.identity == IDENTITY


def test_the_file_is_readable_by_people(directory: Path) -> None:
    document = json.loads((directory / IDENTITY_FILE).read_text())
    assert document["format"] == 1
    assert document["kind"] == "controller"
    assert document["identity"] == IDENTITY


@pytest.mark.parametrize(
    ("kind", "identity", "words"),
    [
        ("broker", IDENTITY, "kind is 'controller', but this process has 'broker'"),
        ("controller", {**IDENTITY, "clusterUid": "u-2"}, "clusterUid is 'u-1'.*has 'u-2'"),
        ("controller", {"clusterUid": "u-1"}, "nodeId is '1'.*has None"),
        ("controller", {**IDENTITY, "more": "x"}, "more is None.*has 'x'"),
    ],
)
def test_somebody_elses_directory_is_refused_and_left_alone(
    directory: Path, kind: str, identity: dict[str, str], words: str
) -> None:
    before = (directory / IDENTITY_FILE).read_bytes()
    with pytest.raises(DataDirError, match=words) as refusal:
        DataDir.open(directory, kind, identity)  # type: ignore[arg-type]  # parametrized literal
    assert str(directory / IDENTITY_FILE) in str(refusal.value)
    assert (directory / IDENTITY_FILE).read_bytes() == before
    DataDir.open(directory, "controller", IDENTITY).close()  # the lock was given back


def test_a_newer_format_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = directory.with_name("newer")
    with monkeypatch.context() as patch:
        patch.setattr("gantry_protocol.process.datadir.FORMAT", 2)
        DataDir.open(newer, "controller", IDENTITY).close()
    with pytest.raises(DataDirError, match="has format 2, this version reads format 1"):
        DataDir.open(newer, "controller", IDENTITY)


def test_a_directory_with_foreign_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataDirError, match=r"no gantry\.json but holds 'photos'"):
        DataDir.open(tmp_path, "broker", IDENTITY)
    assert not (tmp_path / IDENTITY_FILE).exists()


def test_a_fresh_volume_and_an_interrupted_creation_are_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f".{IDENTITY_FILE}.tmp").write_text("half a fi")
    with DataDir.open(tmp_path, "broker", IDENTITY) as data:
        assert data.created


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match="file cannot be used"):
        DataDir.open(tmp_path / "file", "broker", IDENTITY)


def test_any_damage_is_seen(directory: Path) -> None:
    file = directory / IDENTITY_FILE
    whole = file.read_bytes()
    for position in range(len(whole)):
        if whole[position : position + 1].isspace():
            continue  # blanks between members mean nothing
        damaged = bytearray(whole)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        with pytest.raises((CorruptionError, DataDirError)):
            DataDir.open(directory, "controller", IDENTITY)
        file.write_bytes(whole[:position])
        with pytest.raises(CorruptionError, match=r"gantry\.json is damaged"):
            DataDir.open(directory, "controller", IDENTITY)
    file.write_bytes(whole)
    DataDir.open(directory, "controller", IDENTITY).close()


def test_a_directory_in_use_is_refused(directory: Path) -> None:
    with (
        DataDir.open(directory, "controller", IDENTITY),
        pytest.raises(LockHeldError, match="still uses the data directory") as refusal,
    ):
        DataDir.open(directory, "controller", IDENTITY)
    assert refusal.value.exit_code == 75
    DataDir.open(directory, "controller", IDENTITY).close()


async def test_waiting_says_so_and_ends_when_the_other_leaves(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = DataDir.open(directory, "controller", IDENTITY)
    waiting = asyncio.create_task(DataDir.open_async(directory, "controller", IDENTITY, wait_s=30))
    while "waiting up to 30 s" not in capsys.readouterr().err:
        await asyncio.sleep(0)
    holder.close()
    (await waiting).close()


async def test_waiting_can_be_cancelled(directory: Path) -> None:
    with DataDir.open(directory, "controller", IDENTITY):
        waiting = asyncio.create_task(
            DataDir.open_async(directory, "controller", IDENTITY, wait_s=30)
        )
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    DataDir.open(directory, "controller", IDENTITY).close()


def test_waiting_ends_in_time(directory: Path) -> None:
    with (
        DataDir.open(directory, "controller", IDENTITY),
        pytest.raises(LockHeldError, match=r"after 0\.01 s"),
    ):
        DataDir.open(directory, "controller", IDENTITY, wait_s=0.01)


@pytest.fixture
def umask() -> Iterator[None]:
    """As containers have it, and put back afterwards."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("mode", "files", "folders"),
    [
        pytest.param(0o2775, 0o664, 0o2775, id="a volume with an fsGroup"),
        pytest.param(0o2770, 0o664, 0o2775, id="likewise"),
        pytest.param(0o755, 0o644, 0o755, id="of one user"),
        pytest.param(0o2755, 0o644, 0o2755, id="of a group that may not write"),
        pytest.param(0o775, 0o644, 0o755, id="whose files are of no group of its own"),
    ],
)
def test_files_are_the_groups_where_the_directory_is(
    tmp_path: Path, umask: None, mode: int, files: int, folders: int
) -> None:
    path = tmp_path / "volume"
    path.mkdir()
    path.chmod(mode)
    with DataDir.open(path, "broker", IDENTITY):
        make_directory(path / "below")
        atomic_write(path / "below" / "file", b"x")
        made = {entry: stat.S_IMODE(entry.stat().st_mode) for entry in path.rglob("*")}
    assert made.pop(path / "below") == folders
    assert set(made.values()) == {files}
