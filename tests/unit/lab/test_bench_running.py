"""Cases one after another: what one cannot do does not stop the next, and none runs for ever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from gantry_cli.progress import TOLD_EVERY_S, Estimate, Plainly
from gantry_lab.bench import running
from gantry_lab.bench.results import Runs
from gantry_lab.bench.running import BenchRun
from gantry_lab.bench.stage import BenchStage
from gantry_lab.bench.suite import Case, Goal, Wish
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from pathlib import Path

WISH = Wish(runs=2, seconds=1.0, warmup_s=0.0, label="b")


async def measured(stage: BenchStage) -> Runs:
    async def once() -> dict[str, float]:
        return {"ratio": 0.5}

    return await stage.repeat(once)


async def broken(_: BenchStage) -> Runs:
    raise GantryError("The disk is gone.")


async def endless(_: BenchStage) -> Runs:
    await asyncio.Event().wait()
    raise AssertionError


async def local(stage: BenchStage) -> Runs:
    stage.own()
    return await measured(stage)


class Code(Case, frozen=True):
    """A case that runs this function."""

    code: Callable[[BenchStage], Awaitable[Runs]] = measured

    async def measure(self, stage: BenchStage) -> Runs:
        return await self.code(stage)


def case(name: str, run: Callable[[BenchStage], Awaitable[Runs]]) -> Case:
    return Code(name, (Goal("ratio", "r"),), code=run)


async def ran(wish: Wish, directory: Path, *cases: Case) -> BenchRun:
    run = BenchRun(cases, wish, directory, as_json=False)
    await run.all()
    return run


async def test_what_one_case_cannot_do_does_not_stop_the_next(tmp_path: Path) -> None:
    wish = Wish(runs=2, seconds=1.0, warmup_s=0.0, label="b", against="h:1")
    run = await ran(wish, tmp_path, case("a", broken), case("b", local), case("c", measured))
    assert run.failed == ["a: The disk is gone."]
    assert run.refused == ["b needs servers that it starts itself; leave --against out."]
    assert [(one.case, one.metric, one.runs) for one in run.found] == [("c", "ratio", 2)]


async def test_a_case_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LIMIT_TIMES", 0.0)
    monkeypatch.setattr(running, "LIMIT_S", 0.01)
    run = await ran(WISH, tmp_path, case("a", endless), case("c", measured))
    assert run.failed == ["a: ended after 0 min, not being done."]
    assert [one.case for one in run.found] == ["c"]


async def test_a_time_out_of_the_case_itself_is_a_bug_and_told(tmp_path: Path) -> None:
    async def careless(_: BenchStage) -> Runs:
        raise TimeoutError("inside")

    with pytest.raises(TimeoutError, match="inside"):
        await ran(WISH, tmp_path, case("a", careless))


def test_plain_progress_says_now_and_then_how_much_is_left() -> None:
    said: list[str] = []
    clock = itertools.count()  # a second for each look at it, the first when it is made
    show = Plainly(said.append, lambda: float(next(clock)))
    step = Estimate(100.0, show, said.append).part("kills", 50, 100.0)
    for _ in range(int(2 * TOLD_EVERY_S)):
        step()
    assert said == ["kills: 15 of 50; about 35 s left", "kills: 30 of 50; about 20 s left"]


def test_a_long_rest_is_told_in_minutes() -> None:
    said: list[str] = []
    times = iter([0.0, 60.0])
    Plainly(said.append, lambda: next(times))("a", 0.1)
    assert said == ["a; about 9 min left"]
