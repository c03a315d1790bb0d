"""Members come and go, and leadership moves, between real processes that are written to meanwhile.

Every acknowledged write must be there in the end. How long writes paused is printed (``-s``), not
judged: this machine is not alone.
"""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest
from gantry_controller.wal.format import FLOOR_MARK, HEADER_SIZE
from support.member_processes import Processes, running_processes, writing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    async with running_processes(tmp_path) as processes:
        await processes.start_founders()
        yield processes


def flip_a_byte_below_the_floor(log: Path) -> None:
    """Change one bit of what was durable, and confirmed, before the last batch began."""
    data = bytearray(log.read_bytes())
    last = data.rindex(FLOOR_MARK)
    data[(HEADER_SIZE + last) // 2] ^= 1
    log.write_bytes(data)


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
