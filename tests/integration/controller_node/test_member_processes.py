"""Members come and go, and leadership moves, between real processes that are written to meanwhile.

Every acknowledged write must be there in the end. How long writes paused is printed (``-s``), not
judged: this machine is not alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any

import aiohttp
import pytest
from gantry_controller.wal.format import FLOOR_MARK, HEADER_SIZE
from support.raft_quorum import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "integration"
PATIENCE_S = 60.0
UID = "members"


class Processes:
    """`gantry controller` processes, and what an administrator and a client ask of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = root / "token"
        self.token.write_text(TOKEN)
        ports = free_ports(16)
        self.ports = {node: ports[4 * node - 4 : 4 * node] for node in range(1, 5)}
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self.session: aiohttp.ClientSession

    def contact(self, node: int) -> str:
        raft, remoting, http, _ = self.ports[node]
        return f"127.0.0.1:{raft}:{remoting}:{http}"

    def log(self, node: int) -> Path:
        return self.root / f"{node}.log"

    async def start(self, node: int, *more: str) -> None:
        with self.log(node).open("ab") as log:
            await self._spawn(node, log, *more)

    async def _spawn(self, node: int, log: IO[bytes], *more: str) -> None:
        raft, remoting, http, nameserver = map(str, self.ports[node])
        self.running[node] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gantry_cli", "controller"),
            *("--name", f"c-{node - 1}", "--cluster-uid", UID),
            *("--data-dir", str(self.root / str(node))),
            *("--admin-token-file", str(self.token)),
            *("--raft-port", raft, "--remoting-port", remoting),
            *("--http-port", http, "--nameserver-port", nameserver),
            *more,
            stdout=log,
            stderr=log,
        )

    @property
    def peers(self) -> str:
        return ",".join(f"{node}={self.contact(node)}" for node in (1, 2, 3))

    async def start_founders(self) -> None:
        for node in (1, 2, 3):
            await self.start(node, "--peers", self.peers)

    async def ended_by_itself(self, node: int) -> str:
        """What a process said that refused to start."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self.running.pop(node).wait() == 2
        return self.log(node).read_text().splitlines()[-1]

    async def until_it_votes(self, node: int) -> None:
        """Until this member says of itself that it may vote."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, view = await self.ask(node, "GET", "/v1/quorum")
                if any(peer["id"] == node and peer["counted"] for peer in view.get("peers", [])):
                    return
                await asyncio.sleep(0.02)

    async def end(self, node: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(node)
        assert process.returncode is None, "it ended by itself"
        process.send_signal(how)
        await process.wait()

    async def ask(self, node: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.ports[node][2]}{path}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            async with self.session.request(method, url, json=body, headers=headers) as response:
                return response.status, await response.json()
        except (aiohttp.ClientError, OSError):
            return 0, {}

    async def of_leader(self, method: str, path: str, body: object = None) -> Any:
        """Ask everybody until one that leads has done it, like a patient client."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for node in list(self.running):
                    status, view = await self.ask(node, method, path, body)
                    if status == 200:
                        return view
                await asyncio.sleep(0.02)

    async def leader(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for node in list(self.running):
                    status, view = await self.ask(node, "GET", "/v1/quorum")
                    if status == 200 and view["role"] == "leader":
                        return node
                await asyncio.sleep(0.02)

    async def gantry(self, *words: str) -> tuple[int, str, str]:
        """`gantry controllers WORDS`, as a person types it."""
        addresses = ",".join(f"127.0.0.1:{self.ports[node][2]}" for node in self.running)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gantry_cli", "controllers", *words),
            *("--controllers", addresses, "--admin-token-file", str(self.token)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()


def flip_a_byte_below_the_floor(log: Path) -> None:
    """Change one bit of what was durable, and confirmed, before the last batch began."""
    data = bytearray(log.read_bytes())
    last = data.rindex(FLOOR_MARK)
    data[(HEADER_SIZE + last) // 2] ^= 1
    log.write_bytes(data)


class Writer:
    """Declares one group after the other, and remembers which were acknowledged."""

    def __init__(self, processes: Processes) -> None:
        self.acknowledged: list[str] = []
        self.longest_gap_s = 0.0
        self._processes = processes
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        last = clock()
        for number in range(1_000_000):
            name = f"g{number}"
            body = {"uid": name, "replicas": 1, "minInSyncReplicas": 1}
            await self._processes.of_leader("PUT", f"/v1/groups/c/{name}", body)
            self.acknowledged.append(name)
            now = clock()
            if number:  # the first one waits for the processes to start
                self.longest_gap_s = max(self.longest_gap_s, now - last)
            last = now

    async def more(self) -> None:
        """Until some more writes have been acknowledged."""
        wanted = len(self.acknowledged) + 5
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    async def stop(self) -> set[str]:
        """Ends; all that was acknowledged and is gone."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        view = await self._processes.of_leader("GET", "/v1/groups")
        return set(self.acknowledged) - {group["name"] for group in view["groups"]}


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    processes = Processes(tmp_path)
    timeout = aiohttp.ClientTimeout(total=4.0)
    async with aiohttp.ClientSession(timeout=timeout) as processes.session:
        await processes.start_founders()
        try:
            yield processes
        finally:
            for process in processes.running.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()


@asynccontextmanager
async def writing(processes: Processes, what: str) -> AsyncIterator[Writer]:
    """Writes go on meanwhile; none that was acknowledged may be lost."""
    writer = Writer(processes)
    await writer.more()
    yield writer
    await writer.more()
    assert await writer.stop() == set()
    print(f"{what}: {len(writer.acknowledged)} writes, pause {writer.longest_gap_s:.3f} s")


async def test_a_fourth_member_replaces_the_leader(processes: Processes) -> None:
    async with writing(processes, "membership change") as writer:
        await processes.start(4, "--join")
        added = {"node": 4, "address": processes.contact(4)}
        view = await processes.of_leader("POST", "/v1/quorum/members", added)
        assert {peer["id"]: peer["role"] for peer in view["peers"]}[4] == "learner"
        view = await processes.of_leader("POST", "/v1/quorum/members/4/promote")
        assert [peer["role"] for peer in view["peers"]] == ["voter"] * 4
        await writer.more()
        leader = await processes.leader()
        await processes.of_leader("DELETE", f"/v1/quorum/members/{leader}")
        await writer.more()
        assert await processes.leader() != leader
        await processes.end(leader)
        # The three that are left bear the loss of one, hence the fourth does vote.
        await processes.end(await processes.leader(), signal.SIGKILL)


async def test_leadership_moves_on_request_and_before_the_end(processes: Processes) -> None:
    async with writing(processes, "transfer") as writer:
        leader = await processes.leader()
        target = next(node for node in processes.running if node != leader)
        view = await processes.of_leader("POST", "/v1/quorum/transfer", {"target": target})
        assert view["leaderId"] == target
        await writer.more()
        print(f"pause so far {writer.longest_gap_s:.3f} s")
        target = await processes.leader()
        await processes.end(target)
        assert "event=transfer" in processes.log(target).read_text(), (
            "it ended without handing over"
        )
        await writer.more()


async def test_a_member_with_a_damaged_log_says_so_and_comes_back(processes: Processes) -> None:
    """It names byte and file, keeps them, and votes again once it holds what it had confirmed."""
    async with writing(processes, "rejoin") as writer:
        leader = await processes.leader()
        victim, third = (node for node in (1, 2, 3) if node != leader)
        await processes.end(victim, signal.SIGKILL)
        log = processes.root / str(victim) / "raft" / "wal-0000000001"
        flip_a_byte_below_the_floor(log)
        peers = processes.peers
        await processes.start(victim, "--peers", peers)
        said = await processes.ended_by_itself(victim)
        assert re.search(rf"{re.escape(str(log))} is damaged at byte \d+: .*--rejoin", said), said
        await processes.start(victim, "--peers", peers, "--rejoin")
        await processes.until_it_votes(victim)
        assert [path.name for path in log.parent.parent.glob("raft.damaged-*/wal-*")]
        # Of the two that are left it is one, so all that is written from now on it confirms.
        await processes.end(third, signal.SIGKILL)
        await writer.more()


async def test_the_command_line_shows_moves_and_is_refused(processes: Processes) -> None:
    await processes.of_leader("GET", "/v1/groups")
    code, out, err = await processes.gantry("list", "--json")
    assert (code, err) == (0, "")
    view = json.loads(out)
    assert [peer["role"] for peer in view["peers"]] == ["voter"] * 3
    target = next(peer["id"] for peer in view["peers"] if peer["id"] != view["leaderId"])
    code, out, err = await processes.gantry("transfer", str(target))
    assert (code, err) == (0, "")
    assert "leader" in out
    assert await processes.leader() == target
    code, out, err = await processes.gantry("lease", "on")
    assert (code, err) == (0, "")
    assert "Reads by lease are on" in out
    code, out, err = await processes.gantry("promote", "9")
    assert (code, out) == (2, "")
    assert "Node 9 is not a learner; the members are 1, 2, 3." in err
    code, out, err = await processes.gantry("add", "4", "no:address:here")
    assert (code, out) == (2, "")
    assert "is not number=host" in err
