"""Only damage is put aside, whole, once; and a node that did so founds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_controller.node.rejoin import RejoinRefused, aside, put_aside
from gantry_controller.raft.members import Membership
from gantry_controller.raft.messages import EntryKind, HardState, make_entry
from gantry_controller.raft.snapshot import Base, Marker, SnapshotMeta
from gantry_controller.server import Controller
from gantry_controller.settings import ControllerSettings
from gantry_controller.wal.format import HEADER_SIZE, Write
from gantry_controller.wal.snapshots import SnapshotWriter, snapshot_path
from gantry_controller.wal.wal import Wal
from gantry_protocol.errors import DataDirError
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.types import Index, NodeId, Term

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def assemble(slices: Iterable[bytes]) -> object:
    return b"".join(slices)


def write_log(directory: Path, *, voting: bool = True, snapshot: bool = False) -> None:
    """Three batches of an entry each; a snapshot of the first two, if asked for."""
    wal, _ = Wal.open(directory, segment_size_bytes=4096)
    for index in (1, 2, 3):
        entry = make_entry(EntryKind.COMMAND, Term(1), Index(index), b"command")
        markers = []
        if snapshot and index == 3:
            writer = SnapshotWriter(
                directory, SnapshotMeta(Index(2), Term(1), Membership((NodeId(1),)))
            )
            writer.add(b"state")
            writer.finish()
            markers = [Marker(Index(2), Term(1), Base(), restart=False)]
        wal.append([Write([entry], HardState(Term(1), NodeId(1), Index(0), voting), markers)])
    wal.close()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "raft"


def test_damaged_log_is_kept_whole_under_another_name(log: Path) -> None:
    write_log(log)
    flip(log / "wal-0000000001", HEADER_SIZE + 60)
    damaged = {path.name: path.read_bytes() for path in log.iterdir()}
    assert aside(log) == []
    done = put_aside(log, assemble)
    assert done is not None
    assert done.damage.file == log / "wal-0000000001"
    assert HEADER_SIZE <= done.damage.offset <= HEADER_SIZE + 60
    assert [done.kept_in] == aside(log) == [log.with_name("raft.damaged-1")]
    assert {path.name: path.read_bytes() for path in done.kept_in.iterdir()} == damaged
    assert not log.exists()


def test_damaged_snapshot_is_put_aside_with_its_log(log: Path) -> None:
    write_log(log, snapshot=True)
    with pytest.raises(RejoinRefused, match="is sound"):
        put_aside(log, assemble)
    path = snapshot_path(log, Index(2))
    flip(path, path.stat().st_size - 1)
    done = put_aside(log, assemble)
    assert done is not None
    assert done.damage.file == path


def test_sound_log_stays_although_it_was_asked_for(log: Path) -> None:
    write_log(log)
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    with pytest.raises(RejoinRefused, match="sound, so there is nothing to come back from"):
        put_aside(log, assemble)
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before


def test_log_of_a_newer_program_is_no_damage(log: Path) -> None:
    write_log(log, snapshot=True)

    def newer(_: Iterable[bytes]) -> object:
        raise DataDirError("a newer program wrote it")

    with pytest.raises(DataDirError, match="newer"):
        put_aside(log, newer)
    assert aside(log) == []


def test_nothing_at_all_is_refused(log: Path) -> None:
    with pytest.raises(RejoinRefused, match="There is no log"):
        put_aside(log, assemble)


def test_asking_again_goes_on_until_the_node_votes(log: Path) -> None:
    write_log(log)
    flip(log / "wal-0000000001", HEADER_SIZE + 60)
    assert put_aside(log, assemble) is not None
    assert put_aside(log, assemble) is None, "a crash came before the new log"
    write_log(log, voting=False)
    assert put_aside(log, assemble) is None, "a crash came before it was admitted"
    write_log(log.with_name("other"), voting=True)
    (log / "wal-0000000001").unlink()
    log.rmdir()
    log.with_name("other").rename(log)
    with pytest.raises(RejoinRefused, match=r"sound since raft\.damaged-1 was put aside"):
        put_aside(log, assemble)


def test_second_damage_does_not_replace_the_first(log: Path) -> None:
    for number in (1, 2, 3):
        write_log(log)
        flip(log / "wal-0000000001", HEADER_SIZE + 60)
        done = put_aside(log, assemble)
        assert done is not None
        assert done.kept_in.name == f"raft.damaged-{number}"
    assert [path.name for path in aside(log)] == [f"raft.damaged-{n}" for n in (1, 2, 3)]


@pytest.mark.parametrize("files_aside", [False, True])
async def test_quorum_of_one_votes_unless_it_has_files_aside(
    tmp_path: Path, files_aside: bool
) -> None:
    ports = dict.fromkeys(("raft_port", "remoting_port", "nameserver_port", "http_port"), 0)
    settings = ControllerSettings(data_dir=tmp_path / "data", **ports)
    controller = Controller(settings)
    await controller.start()
    await controller.stop()
    (tmp_path / "data" / "raft").rename(tmp_path / "data" / "raft.damaged-1")
    if not files_aside:
        (tmp_path / "data" / "raft.damaged-1").rename(tmp_path / "elsewhere")
    controller = Controller(settings)
    try:
        await controller.start()
        assert controller.node.is_voter is not files_aside
    finally:
        await controller.stop()


async def test_process_that_waited_while_files_were_put_aside_begins_anew(tmp_path: Path) -> None:
    ports = dict.fromkeys(("raft_port", "remoting_port", "nameserver_port", "http_port"), 0)
    controller = Controller(ControllerSettings(data_dir=tmp_path, **ports))
    with DataDir.open(tmp_path, "controller", {"cluster_uid": "local", "node_id": "1"}):
        (tmp_path / "raft.damaged-1").mkdir()
    try:
        with pytest.raises(DataDirError, match="was put aside while this process waited"):
            await controller.start()
    finally:
        await controller.stop()
