"""A soak as its users run it: asked over HTTP while it runs, and judged by its exit code.

The groups are in memory behind real sockets, so each can be made to break one promise; a soak that
did not name it would be worth nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from support.controllers_said import TOKEN, ControllersSaid
from support.fake_group import Fault, acknowledge_only, lose_answer, refuse, store_twice
from support.patience import PATIENCE_S
from support.served_group import ServedGroup

SEND = RequestCode.SEND_MESSAGE_V2


class SoakProcess:
    """`gantry_lab soak` in a process of its own, and its HTTP side."""

    def __init__(self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession) -> None:
        self.process = process
        self._session = session
        self._base: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._said: list[str] = []
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """Take in what it says; its address is among it."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._said.append(line.decode())
            _, serving, address = self._said[-1].strip().partition("event=serving http=")
            if serving:
                self._base.set_result(f"http://{address}")
        if not self._base.done():
            self._base.set_exception(AssertionError("".join(self._said)))

    async def ask(self, method: str, path: str, *, status: int = 200) -> dict[str, Any]:
        async with self._session.request(method, await self._base + path) as response:
            assert response.status == status, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer

    async def text(self, path: str) -> str:
        async with self._session.get(await self._base + path) as response:
            return await response.text()

    async def state(self) -> dict[str, Any]:
        return await self.ask("GET", "/v1/state")

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The state once `condition` holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition(state := await self.state()):
                await asyncio.sleep(0.02)
        return state

    async def more(self, count: int = 20) -> dict[str, Any]:
        """The state once `count` more messages are acknowledged."""
        target = (await self.state())["acknowledged"] + count
        return await self.until(lambda state: state["acknowledged"] >= target)

    async def end(self) -> tuple[int, dict[str, Any], str]:
        """SIGTERM; the exit code, the account and what it said."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            told = await self.gone()
        assert self.process.returncode is not None
        return self.process.returncode, json.loads(told), "".join(self._said)

    async def gone(self) -> bytes:
        """Wait for the end of the process and its pipes; what it printed."""
        assert self.process.stdout is not None
        told = await self.process.stdout.read()
        await self._listening
        await self.process.wait()
        return told


@asynccontextmanager
async def soaking(name_server: str, *options: str) -> AsyncIterator[SoakProcess]:
    """A soak of topic `soaked` that serves HTTP; it is gone afterwards."""
    environment = {key: value for key, value in os.environ.items() if "GANTRY" not in key}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gantry_lab", "soak", "soaked", "--nameserver", name_server),
        *("--http", "127.0.0.1:0", "--json", "--patience", "1", "--interval-ms", "2", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    async with aiohttp.ClientSession() as session:
        soak = SoakProcess(process, session)
        try:
            yield soak
        finally:
            if process.returncode is None:
                process.kill()
            await soak.gone()


@pytest.fixture
async def served() -> AsyncIterator[ServedGroup]:
    found = ServedGroup()
    await found.start()
    yield found
    await found.stop()


async def test_paused_load_is_counted_and_goes_on(served: ServedGroup) -> None:
    async with soaking(served.group.address) as soak:
        await soak.until(lambda state: state["flowing"])
        for _ in range(2):  # a second pause finds the same
            paused = await soak.ask("POST", "/v1/pause?patienceS=10")
            assert paused["clean"]
            assert paused["outstanding"] == 0
            state = await soak.state()
            assert not state["sending"]
            verdict = paused["verdict"]
            assert verdict["acknowledged"] == verdict["consumed"] == state["acknowledged"] > 0
        assert sum(map(len, served.group.logs.values())) == verdict["acknowledged"]
        for _ in range(2):
            await soak.ask("POST", "/v1/resume")
        after = await soak.more()
        assert after["sending"]
        assert after["error"] is None
        code, outcome, _ = await soak.end()
    assert code == 0
    assert outcome["clean"]
    assert outcome["reasons"] == []
    assert outcome["verdict"]["acknowledged"] > verdict["acknowledged"]


async def test_pause_is_no_gap_and_a_silent_group_is(served: ServedGroup) -> None:
    async with soaking(served.group.address) as soak:
        before = await soak.until(lambda state: state["flowing"])
        await soak.ask("POST", "/v1/pause?patienceS=10")
        paused = await soak.state()
        await asyncio.sleep(1.0)
        await soak.ask("POST", "/v1/resume")
        await soak.until(lambda state: state["flowing"])
        gap = (await soak.ask("GET", f"/v1/gap?sinceS={before['nowS']}"))["gap"]
        assert not gap["startS"] <= paused["lastAckS"] < paused["nowS"] < gap["endS"]

        struck_s = (await soak.state())["nowS"]
        served.group.fail(SEND, *[refuse(ResponseCode.SERVICE_NOT_AVAILABLE)] * 60)
        await soak.until(lambda _: not served.group.faults[SEND])
        await soak.more()
        gap = (await soak.ask("GET", f"/v1/gap?sinceS={struck_s}&stream=writes"))["gap"]
        assert gap["endS"] > struck_s
        assert gap["ms"] == pytest.approx(1000 * (gap["endS"] - gap["startS"]))
        ended = f"/v1/gap?sinceS={struck_s}&untilS={before['nowS'] - 3600}"
        assert (await soak.ask("GET", ended))["gap"] is None


async def test_commits_are_a_stream_of_their_own(served: ServedGroup) -> None:
    async with soaking(served.group.address, "--metadata") as soak:
        state = await soak.until(lambda state: state["commitsFlowing"])
        await soak.ask("POST", "/v1/pause?patienceS=10")
        assert (await soak.until(lambda state: state["commitsFlowing"]))["sending"] is False
        since = f"/v1/gap?stream=commits&sinceS={state['nowS']}"
        assert (await soak.ask("GET", since))["gap"]["ms"] > 0
    assert served.group.topics == {"soaked", "soaked-commits"}


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/v1/gap", "sinceS"),
        ("GET", "/v1/gap?sinceS=yesterday", "sinceS='yesterday' is no number"),
        ("GET", "/v1/gap?sinceS=nan", "is no number"),
        ("GET", "/v1/gap?sinceS=0&stream=reads", "no stream 'reads'"),
        ("GET", "/v1/gap?sinceS=0&stream=commits", "--metadata"),
        ("POST", "/v1/pause", "patienceS"),
        ("POST", "/v1/pause?patienceS=-1", "how long to wait"),
    ],
)
async def test_bad_parameters_are_named(
    asked_in_vain: SoakProcess, method: str, path: str, words: str
) -> None:
    answer = await asked_in_vain.ask(method, path, status=400)
    assert answer["error"] == "INVALID_REQUEST"
    assert words in answer["message"]


@pytest.fixture
async def asked_in_vain(served: ServedGroup) -> AsyncIterator[SoakProcess]:
    async with soaking(served.group.address) as soak:
        yield soak


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (acknowledge_only, "Acknowledged, and never consumed: "),
        (store_twice, "Consumed twice, without a lost answer that explains it: 1 messages."),
    ],
    ids=["lost", "twice"],
)
async def test_broken_promise_is_named_and_fails(
    served: ServedGroup, fault: Fault, words: str
) -> None:
    async with soaking(served.group.address) as soak:
        await soak.more()
        served.group.fail(SEND, fault)
        await soak.more()
        paused = await soak.ask("POST", "/v1/pause?patienceS=0.5")
        assert not paused["clean"]
        code, outcome, said = await soak.end()
    assert code == 1
    assert not outcome["clean"]
    assert any(words in reason for reason in outcome["reasons"])
    assert f"gantry: {words}" in said


async def test_lost_answers_break_no_promise(served: ServedGroup) -> None:
    async with soaking(served.group.address) as soak:
        await soak.more()
        served.group.fail(SEND, lose_answer)
        await soak.more()
        await soak.ask("POST", "/v1/pause?patienceS=10")
        figures = await soak.text("/metrics")
        code, outcome, _ = await soak.end()
    assert code == 0
    assert outcome["verdict"]["duplicatedAfterLostAnswer"] >= 1
    acknowledged = float(outcome["verdict"]["acknowledged"])
    assert f"gantry_soak_acknowledged_total {acknowledged}" in figures
    assert "gantry_soak_outstanding 0.0" in figures
    assert "gantry_soak_lost_answers_total 0.0" not in figures


async def test_what_another_run_left_in_the_topic_does_not_count(served: ServedGroup) -> None:
    for _ in range(2):
        async with soaking(served.group.address) as soak:
            await soak.more()
            code, outcome, said = await soak.end()
        assert code == 0, said
        verdict = outcome["verdict"]
        assert verdict["acknowledged"] == verdict["consumed"]
        assert verdict["late"] == 0
    assert sum(map(len, served.group.logs.values())) > verdict["acknowledged"]


async def test_nothing_acknowledged_is_no_success(served: ServedGroup) -> None:
    async with soaking("127.0.0.1:1") as soak:
        state = await soak.until(lambda state: state["lastTrouble"] != "")
        assert not state["started"]
        assert "no topic yet" in await soak.text("/readyz")
        assert await soak.text("/livez") == "ok\n"
        code, outcome, _ = await soak.end()
    assert code == 1
    (reason,) = outcome["reasons"]
    assert reason.startswith("No message was acknowledged. No name server answers at 127.0.0.1:1")


async def test_port_in_use_is_refused_before_anything_is_sent(served: ServedGroup) -> None:
    async with soaking(served.group.address, "--http", served.group.address) as soak:
        assert await soak.gone() == b""
        with pytest.raises(AssertionError, match="is in use, so HTTP cannot be served"):
            await soak.state()
    assert served.group.topics == set()


async def test_second_signal_ends_without_an_account(served: ServedGroup) -> None:
    async with soaking(served.group.address, "--patience", "60") as soak:
        await soak.more()
        served.group.fail(SEND, acknowledge_only)
        await soak.more()
        soak.process.send_signal(signal.SIGTERM)
        await soak.until(lambda state: not state["sending"])
        soak.process.send_signal(signal.SIGTERM)
        assert await soak.gone() == b""
    assert soak.process.returncode == 130


async def test_name_service_may_come_late_and_go(served: ServedGroup) -> None:
    port = await served.start_name_server()
    await served.stop_name_server()
    async with soaking(f"127.0.0.1:{port}") as soak:
        state = await soak.until(lambda state: "No name server answers" in state["lastTrouble"])
        assert not state["started"]
        await soak.ask("POST", "/v1/pause?patienceS=1")  # nothing to wait for yet
        await soak.ask("POST", "/v1/resume")
        await served.start_name_server(port)
        await soak.more()
        await served.stop_name_server()
        served.group.fail(SEND, lose_answer, refuse(ResponseCode.SYSTEM_BUSY))
        await soak.more(200)
        code, outcome, said = await soak.end()
    assert code == 0, said
    assert outcome["clean"]


@pytest.fixture
async def controllers() -> AsyncIterator[ControllersSaid]:
    found = ControllersSaid()
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
def watching(controllers: ControllersSaid, tmp_path: Path) -> tuple[str, ...]:
    """The options to watch `orders`."""
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    return (
        *("--controllers", controllers.address, "--admin-token-file", str(token)),
        *("--group", "orders"),
    )


async def test_watched_group_is_told_and_two_masters_in_one_epoch_fail(
    served: ServedGroup, controllers: ControllersSaid, watching: tuple[str, ...]
) -> None:
    async with soaking(served.group.address, *watching) as soak:
        state = await soak.until(lambda state: state["group"] and state["quorum"])
        assert state["group"]["staleS"] < PATIENCE_S
        assert state["group"] | {"staleS": 0} == {
            "name": "orders",
            "masterBrokerId": 1,
            "masterPodUid": "pod-1",
            "masterEpoch": 3,
            "syncStateSet": [1, 2],
            "members": [
                {"brokerId": n, "podUid": f"pod-{n}", "alive": True, "draining": False}
                for n in (1, 2)
            ],
            "settled": True,
            "staleS": 0,
        }
        assert state["quorum"] == {"leaderName": "gantry-controller-0", "whole": True}
        assert state["masterships"] == [{"epoch": 3, "brokerId": 1}]
        await soak.more(1)
        controllers.tell(2, 2)
        controllers.tell(3, 2)
        state = await soak.until(lambda state: state["conflicts"] != [])
        assert state["masterships"][0] == {"epoch": 2, "brokerId": 2}
        assert (await soak.ask("POST", "/v1/pause?patienceS=10"))["clean"]
        code, outcome, said = await soak.end()
    assert code == 1
    assert outcome["conflicts"] == [3]
    assert outcome["reasons"] == ["Two masters in one epoch: 3."]
    assert "gantry: Two masters in one epoch: 3." in said


async def test_watched_group_that_nobody_knows_is_no_success(
    served: ServedGroup, watching: tuple[str, ...]
) -> None:
    async with soaking(served.group.address, *watching[:-1], "bills") as soak:
        await soak.until(lambda state: state["quorum"] and state["flowing"])
        code, outcome, _ = await soak.end()
    assert code == 1
    assert outcome["reasons"] == [
        "Nothing was heard of the watched group. The controllers know no group 'bills'."
    ]
