"""A snapshot on its way: it ends when nobody wants it any more, and leaves no file behind."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import NodeOptions
from gantry_controller.node.receiving import SnapshotReceiver
from gantry_controller.node.shipping import SnapshotSender
from gantry_controller.node.snapshots import Snapshots
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.members import Membership
from gantry_controller.raft.shipment import InstallSnapshot, Shipment, decode_reply, encode
from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.snapshots import SnapshotFile, SnapshotInfo, snapshot_path
from gantry_protocol.types import Index, NodeId, Term
from support.raft_quorum import Journal, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ME, PEER, OTHER = NodeId(1), NodeId(2), NodeId(3)
META = SnapshotMeta(Index(9), Term(2), Membership((ME, PEER)))


def options(directory: Path) -> NodeOptions:
    peers = {ME: "h:1", PEER: "h:2", OTHER: "h:3"}
    return NodeOptions(cluster_uid="q", node_id=ME, peers=peers, directory=directory)


def open_files(path: Path) -> int:
    """Descriptors of this process that are open on ``path``."""
    return sum(link.resolve() == path for link in Path("/proc/self/fd").iterdir())


class TestSending:
    @pytest.fixture
    async def sender(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[SnapshotSender]:
        """Its peers take the connection and answer nothing."""
        snapshot_path(tmp_path, META.index).write_bytes(b"all of it")

        async def silent(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(SnapshotSender, "_attempt", silent)
        info = SnapshotInfo(META, size=9, checksum=0)
        snapshots: Any = SimpleNamespace(info=info, run=asyncio.to_thread)
        sender = SnapshotSender(
            options(tmp_path), snapshots, address_of=lambda _: None, delivered=lambda *_: None
        )
        yield sender
        await sender.stop()

    async def test_one_that_is_no_longer_wanted_ends(
        self, sender: SnapshotSender, tmp_path: Path
    ) -> None:
        path = snapshot_path(tmp_path, META.index)
        sender.serve([PEER, OTHER])
        await until(lambda: open_files(path) == 2)
        sender.serve([OTHER])
        await until(lambda: open_files(path) == 1)
        assert sender.under_way == [OTHER]
        sender.serve([])
        await until(lambda: open_files(path) == 0)
        assert sender.under_way == []

    async def test_one_that_ends_while_its_file_is_opened_leaves_it_closed(
        self, sender: SnapshotSender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, told = snapshot_path(tmp_path, META.index), asyncio.Event()

        async def slow(work: Any, *arguments: object) -> Any:
            opened = work(*arguments)
            await told.wait()
            return opened

        monkeypatch.setattr(sender._snapshots, "run", slow)
        sender.serve([PEER])
        await until(lambda: open_files(path) == 1)
        sender.serve([])
        await asyncio.sleep(0)
        told.set()
        await until(lambda: open_files(path) == 0)

    async def test_one_that_is_wanted_again_begins_anew(
        self, sender: SnapshotSender, tmp_path: Path
    ) -> None:
        path = snapshot_path(tmp_path, META.index)
        sender.serve([PEER])
        await until(lambda: open_files(path) == 1)
        sender.serve([])
        sender.serve([PEER])
        await until(lambda: open_files(path) == 1)
        for _ in range(3):  # the first one has ended by now, and does not strike out the second
            await asyncio.sleep(0)
        assert sender.under_way == [PEER]

    async def test_who_needs_the_next_one_is_sent_that_too(
        self, sender: SnapshotSender, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def taken(*_: object) -> Index:
            return META.index

        monkeypatch.setattr(sender, "_attempt", taken)
        for sent in (1, 2):
            sender.serve([PEER])
            await until(lambda: sender.stats.sent == sent)  # noqa: B023
            assert sender.under_way == []


class Core:
    """Says whether a snapshot would bring anything."""

    commit_index = Index(7)
    wanted = True

    def snapshot_offered(self, index: Index, term: Term) -> bool:
        return self.wanted


class Peer:
    """The other end of the connection."""

    def __init__(self) -> None:
        self.holds: list[int] = []
        self.aborted = False

    def send(self, body: bytes) -> None:
        self.holds.append(decode_reply(body).holds)

    def abort(self) -> None:
        self.aborted = True


class TestReceiving:
    @pytest.fixture
    async def receiver(self, tmp_path: Path) -> AsyncIterator[SnapshotReceiver]:
        snapshots = Snapshots(
            options(tmp_path), Journal(), news=lambda: None, failed=lambda error: None
        )
        receiver = SnapshotReceiver(options(tmp_path), snapshots, failed=self.failures.append)
        receiver.start(self.core)  # type: ignore[arg-type]  # only what is asked of it
        yield receiver
        await receiver.stop()
        await snapshots.stop()

    @pytest.fixture(autouse=True)
    def _world(self) -> None:
        self.core, self.peer = Core(), Peer()
        self.failures: list[BaseException] = []

    async def get(self, receiver: SnapshotReceiver, index: int, offset: int, data: bytes) -> None:
        """One chunk of ten bytes' snapshot, and its answer."""
        answers = len(self.peer.holds)
        shipment = Shipment(Index(index), Term(2), 10, 0)
        chunk = InstallSnapshot(PEER, ME, shipment, offset, data)
        receiver.on_frames(PEER, [encode(chunk)], self.peer)
        await until(lambda: len(self.peer.holds) > answers or self.peer.aborted)

    async def begin(self, receiver: SnapshotReceiver, index: int) -> None:
        await self.get(receiver, index, 0, b"")
        await self.get(receiver, index, 0, b"half")

    def files(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    async def test_half_of_one_that_is_no_longer_wanted_is_removed(
        self, receiver: SnapshotReceiver, tmp_path: Path
    ) -> None:
        await self.begin(receiver, 9)
        assert [name[-4:] for name in self.files(tmp_path)] == [".new"]
        self.core.wanted = False
        await self.get(receiver, 9, 4, b"more")
        assert self.files(tmp_path) == []
        assert self.peer.holds == [0, 0, 7], "and what this node holds is said"

    async def test_half_of_one_is_removed_when_a_newer_one_comes(
        self, receiver: SnapshotReceiver, tmp_path: Path
    ) -> None:
        await self.begin(receiver, 9)
        (older,) = self.files(tmp_path)
        await self.begin(receiver, 12)
        assert len(self.files(tmp_path)) == 1
        assert older not in self.files(tmp_path)

    async def test_half_of_one_is_removed_when_the_disk_is_full(
        self, receiver: SnapshotReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.begin(receiver, 9)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(SnapshotFile, "append", full)
            await self.get(receiver, 9, 4, b"more")
        assert (self.peer.aborted, self.files(tmp_path), self.failures) == (True, [], [])
        self.peer = Peer()
        await self.begin(receiver, 9)
        assert (self.peer.holds, self.peer.aborted) == ([0, 0], False), "from the start"

    async def test_another_error_of_the_disk_ends_the_node(
        self, receiver: SnapshotReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.begin(receiver, 9)
        error = OSError(errno.EIO, "Input/output error")

        def broken(*_: object) -> None:
            raise error

        monkeypatch.setattr(SnapshotFile, "append", broken)
        await self.get(receiver, 9, 4, b"more")
        assert (self.peer.aborted, self.failures) == (True, [error])

    async def test_what_is_no_snapshot_is_not_said_to_be_held(
        self, receiver: SnapshotReceiver, tmp_path: Path
    ) -> None:
        await self.begin(receiver, 9)
        await self.get(receiver, 9, 4, b"senten")
        assert (self.peer.holds, self.peer.aborted) == ([0, 0], True)
        assert self.files(tmp_path) == []

    async def test_nobody_sends_one_in_anothers_name(self, receiver: SnapshotReceiver) -> None:
        for source, target in ((OTHER, ME), (PEER, OTHER)):
            chunk = InstallSnapshot(source, target, Shipment(Index(9), Term(2), 10, 0), 0, b"")
            with pytest.raises(MessageError, match="sent a snapshot of"):
                receiver.on_frames(PEER, [encode(chunk)], self.peer)
