"""The client against a group in memory: retries, what they report, and reading exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from gantry_cli.client.brokers import together
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.ledger import Ledger
from gantry_cli.client.producer import Avoidance, Producer, SendFailedError
from gantry_cli.client.routes import NameServiceError, Queue, Routes, TopicNotFoundError
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from support.fake_group import (
    ADDRESS,
    NAME_SERVER,
    FakeGroup,
    Fault,
    lose_answer,
    lose_request,
    nobody_listens,
    refuse,
    stored_in_doubt,
    stored_only,
    time_out,
)
from support.patience import PATIENCE_S

SEND = RequestCode.SEND_MESSAGE_V2


class Scene:
    """A group, a producer and a ledger that hears of both."""

    def __init__(self, group: FakeGroup, *, give_up_after_s: float = 10.0) -> None:
        self.group = group
        self.ledger = Ledger()
        self.routes = Routes([NAME_SERVER], group)
        self.producer = Producer(
            self.routes,
            group,
            give_up_after_s=give_up_after_s,
            on_answer_lost=self.ledger.answer_lost,
        )

    async def send(self, body: bytes = b"hello") -> None:
        message = self.producer.message("t", body)
        self.ledger.sent(message.key)
        try:
            result = await self.producer.send(message)
        except SendFailedError:
            self.ledger.give_up(message.key)
            raise
        self.ledger.acknowledge(message.key, result.position)

    @asynccontextmanager
    async def consuming(self, **options: object) -> AsyncIterator[Consumer]:
        async def received(item: ReceivedRecord) -> None:
            self.ledger.consume(item.key, item.position)
            if item.record.body != b"never done":
                consumer.done(item.position)

        consumer = Consumer(
            self.routes,
            self.group,
            "t",
            received,
            start=options.pop("start", Start.EARLIEST),  # type: ignore[arg-type]  # test shorthand
            suspend_s=0.05,
            route_interval_s=0.01,
            commit_interval_s=0.01,
            **options,  # type: ignore[arg-type]  # test shorthand
        )
        task = asyncio.create_task(consumer.run())
        try:
            yield consumer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.routes.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("fault", "stored", "lost_answers"),
    [
        pytest.param(refuse(ResponseCode.SYSTEM_ERROR), 1, 0, id="1 in-sync set too small"),
        pytest.param(refuse(ResponseCode.SYSTEM_BUSY), 1, 0, id="2 busy"),
        pytest.param(refuse(ResponseCode.SERVICE_NOT_AVAILABLE), 1, 0, id="14 not the master"),
        pytest.param(refuse(ResponseCode.TOPIC_NOT_EXIST), 1, 0, id="17 topic not there yet"),
        pytest.param(nobody_listens, 1, 0, id="connection refused"),
        pytest.param(lose_request, 1, 1, id="request lost"),
        pytest.param(lose_answer, 2, 1, id="answer lost"),
        pytest.param(time_out, 1, 1, id="time-out"),
        pytest.param(stored_only, 2, 1, id="12 stored, not acknowledged"),
        pytest.param(stored_in_doubt, 2, 1, id="14 stored, by a master in doubt"),
    ],
)
async def test_send_is_retried_until_acknowledged(
    fault: Fault, stored: int, lost_answers: int
) -> None:
    scene = Scene(FakeGroup(queues=1))
    scene.group.fail(SEND, fault)
    message = scene.producer.message("t", b"hello")
    scene.ledger.sent(message.key)
    result = await scene.producer.send(message)
    await scene.routes.close()
    assert (result.attempts, result.lost_answers) == (2, lost_answers)
    assert len(scene.group.logs["t", 0]) == stored
    assert result.position.queue_offset == stored - 1
    assert {record.properties for record in scene.group.logs["t", 0]} == {message.properties()}


async def test_groups_that_are_gone_are_left_out_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With many of them, a message that meets each anew runs out of time."""
    # Longer than all of this takes on a machine that has other things to do.
    monkeypatch.setattr("gantry_cli.client.producer.FIRST_AVOIDANCE_S", 600.0)
    scene = Scene(FakeGroup(queues=1), give_up_after_s=600.0)
    scene.group.ghosts = tuple(f"ghost-{number}" for number in range(24))
    for _ in range(100):
        await scene.send()
    tried = [address for address, code in scene.group.asked if code == SEND]
    ghosts = [address for address in tried if address.startswith("ghost")]
    assert len(ghosts) == len(set(ghosts)), "each was tried once"
    assert tried.count(ADDRESS) == 100


def test_an_avoided_group_is_tried_again_and_avoided_for_longer() -> None:
    one, other = Queue("a", 0, "a:1"), Queue("b", 0, "b:1")
    avoidance = Avoidance()

    def tried(now_s: float) -> list[str]:
        return [queue.broker_name for queue in avoidance.best((one, other), None, now_s)]

    avoidance.failed("a", 10.0)
    avoidance.failed("a", 10.5)
    assert tried(10.9) == ["b"]
    assert tried(11.0) == ["a", "b"], "one second, whatever fails meanwhile"
    avoidance.failed("a", 11.0)
    assert tried(12.9) == ["b"]
    avoidance.failed("b", 12.9)
    assert tried(12.95) == ["a", "b"], "nobody is left: all are tried"
    for _ in range(10):
        avoidance.failed("a", 1_000.0)
    avoidance.served("a")
    assert tried(1_000.0) == ["a", "b"]


@pytest.mark.parametrize("code", [13, 29, 3, 999])
async def test_what_can_only_be_refused_again_is_not_retried(code: int) -> None:
    scene = Scene(FakeGroup())
    scene.group.fail(SEND, refuse(code, "the message is illegal"))
    with pytest.raises(SendFailedError, match="the message is illegal"):
        await scene.send()
    assert [asked for _, asked in scene.group.asked].count(SEND) == 1


async def test_giving_up_says_how_many_answers_were_lost() -> None:
    scene = Scene(FakeGroup(), give_up_after_s=0.02)
    scene.group.fail(SEND, lose_answer, *[nobody_listens] * 100)
    with pytest.raises(SendFailedError, match="nobody listens") as caught:
        await scene.send()
    await scene.routes.close()
    assert caught.value.lost_answers == 1
    assert scene.ledger.verdict().unknown == 1


async def test_name_servers_are_asked_in_turn_and_the_good_one_first_next_time() -> None:
    group = FakeGroup()
    group.fail(RequestCode.GET_ROUTEINFO_BY_TOPIC, nobody_listens)
    routes = Routes(["bad:9876", "good:9876"], group)
    await routes.fetch("t")
    await routes.fetch("t")
    assert [address for address, _ in group.asked] == ["bad:9876", "good:9876", "good:9876"]


async def test_no_name_server_is_one_sentence_with_all_addresses() -> None:
    group = FakeGroup()
    group.fail(RequestCode.GET_ROUTEINFO_BY_TOPIC, nobody_listens, time_out)
    with pytest.raises(NameServiceError, match="at a:9876, b:9876"):
        await Routes(["a:9876", "b:9876"], group).fetch("t")


async def test_unknown_topic_says_how_to_make_it() -> None:
    with pytest.raises(TopicNotFoundError, match="gantry topics create missing"):
        await Routes([NAME_SERVER], FakeGroup()).find("missing")


async def test_failed_refresh_keeps_the_route_that_is_known() -> None:
    group = FakeGroup()
    routes = Routes([NAME_SERVER], group)
    before = await routes.find("t")
    group.fail(RequestCode.GET_ROUTEINFO_BY_TOPIC, refuse(1))
    routes.refresh_soon("t")
    await until(lambda: len(group.asked) == 2)
    assert await routes.find("t") == before
    await routes.close()


async def test_everything_sent_is_consumed_once_and_committed() -> None:
    scene = Scene(FakeGroup())
    async with scene.consuming() as consumer:
        for _ in range(50):
            await scene.send()
        await until(lambda: scene.ledger.consumed == 50)
        assert await consumer.commit()
    verdict = scene.ledger.verdict()
    assert (verdict.acknowledged, verdict.consumed, verdict.duplicated) == (50, 50, 0)
    assert verdict.clean
    assert scene.group.committed == {("gantry", "t", 0): 25, ("gantry", "t", 1): 25}


async def test_only_what_is_declared_done_is_committed() -> None:
    scene = Scene(FakeGroup(queues=1))
    for body in (b"one", b"two", b"never done"):
        await scene.send(body)
    async with scene.consuming() as consumer:
        await until(lambda: scene.ledger.consumed == 3)
        assert await consumer.commit()
    assert scene.group.committed == {("gantry", "t", 0): 2}


async def test_consumer_continues_where_the_group_committed() -> None:
    scene = Scene(FakeGroup(queues=1))
    for _ in range(5):
        await scene.send()
    scene.group.committed["gantry", "t", 0] = 3
    async with scene.consuming(start=Start.COMMITTED):
        await until(lambda: scene.ledger.consumed == 2)
    assert scene.ledger.verdict().lost == 3


async def test_consumer_without_committed_offset_starts_at_the_beginning() -> None:
    scene = Scene(FakeGroup(queues=1))
    await scene.send()
    async with scene.consuming(start=Start.COMMITTED):
        await until(lambda: scene.ledger.consumed == 1)


async def test_pull_errors_neither_lose_nor_repeat_records() -> None:
    scene = Scene(FakeGroup(queues=1))
    scene.group.fail(
        RequestCode.PULL_MESSAGE, time_out, lose_request, refuse(1), nobody_listens, refuse(19)
    )
    async with scene.consuming() as consumer:
        for _ in range(10):
            await scene.send()
        await until(lambda: scene.ledger.consumed == 10)
        assert consumer.errors == 5
        assert consumer.illegal_offsets == 0
    assert scene.ledger.verdict().clean


async def test_moved_offset_is_followed_and_counted() -> None:
    def moved(group: FakeGroup, command: RemotingCommand) -> RemotingCommand:
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1"}
        return reply(
            command, ResponseCode.PULL_OFFSET_MOVED, ext=ext | {"minOffset": "1", "maxOffset": "2"}
        )

    scene = Scene(FakeGroup(queues=1))
    await scene.send()
    await scene.send()
    scene.group.fail(RequestCode.PULL_MESSAGE, moved)
    async with scene.consuming() as consumer:
        await until(lambda: scene.ledger.consumed == 1)
        assert consumer.illegal_offsets == 1
    assert scene.ledger.verdict().lost == 1


async def test_a_consumer_reads_where_it_is_sent_and_from_the_master_where_nobody_answers() -> None:
    scene = Scene(FakeGroup(queues=1))
    group = scene.group
    group.readers, group.suggested = {2: "replica:10911", 3: "ghost:10911"}, 2

    def pulled() -> list[str]:
        """Where the last pulls went."""
        return [at for at, code in group.asked if code == RequestCode.PULL_MESSAGE]

    async with scene.consuming() as consumer:
        await scene.send()
        await until(lambda: scene.ledger.consumed == 1)
        await scene.send()
        await until(lambda: pulled()[-1:] == ["replica:10911"])
        group.suggested = 3
        await scene.send()
        await until(lambda: "ghost:10911" in pulled())
        group.suggested = 9  # a member that the route does not name
        await until(lambda: pulled()[-1] == ADDRESS)
        await scene.send()
        await until(lambda: scene.ledger.consumed == 4)
        assert pulled()[-1] == ADDRESS
        assert set(consumer.read_bytes) >= {0, 2}
    assert scene.ledger.verdict().clean


async def test_sends_go_to_the_address_in_the_route() -> None:
    scene = Scene(FakeGroup())
    await scene.send()
    assert (ADDRESS, SEND) in scene.group.asked


@pytest.mark.parametrize("code", [RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET])
async def test_queues_may_come_while_offsets_are_asked_for_or_told(
    code: RequestCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was added ended the consumer that was just committing."""
    scene = Scene(FakeGroup(queues=1))
    serve, asked = scene.group.serve, 0

    async def slowly(command: RemotingCommand) -> RemotingCommand:
        nonlocal asked
        if command.code == code and asked < 3:
            asked += 1
            known = len(consumer._states)
            scene.group.queues += 1
            await until(lambda: len(consumer._states) > known)
        return await serve(command)

    monkeypatch.setattr(scene.group, "serve", slowly)
    async with scene.consuming() as consumer:
        while asked < 3:
            await scene.send()
            await consumer.at_end()
        for _ in range(8):
            await scene.send()
        await until(lambda: scene.ledger.outstanding() == 0)
        assert await consumer.commit()


async def test_what_failed_for_one_of_many_leaves_no_request_to_cancel_behind() -> None:
    """Or the next time-out in this task would end it, instead of being one."""

    async def fail(number: int) -> None:
        await asyncio.sleep(0.001 * number)
        raise NameServiceError("nobody answers")

    for _ in range(3):
        with pytest.raises(NameServiceError):
            await together([1, 2], fail)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_who_is_given_up_gives_up_all_that_it_asks() -> None:
    ended: list[int] = []

    async def ask(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    asking = asyncio.create_task(together([1, 2], ask))
    await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended == [1, 2]
