"""Requests about queues of mapped topics, at the group itself and at the group that has them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from gantry_broker.clients.mapped import again as passed_again
from gantry_broker.clients.mapped import requests
from gantry_broker.clients.mapped.again import PASSED_AGAIN
from gantry_broker.clients.mapped.requests import AS_NEWEST, PHYSICAL
from gantry_broker.clients.resent import RESENT, Marks
from gantry_broker.store.contract import Refusal
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import Busy, HeaderError, RequestTimeout
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from gantry_protocol.records import decode_records
from gantry_protocol.send_answer import MAY_BE_STORED
from support.mapped_group import BEYOND, HERE, OLDER, STATIC, THERE, TOPIC, MappedGroup, at
from support.patience import PATIENCE_S

AGAIN = MAPPED_QUEUES_MAX
MOVED = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 40, AGAIN)), "", 1)
CAME = MappedQueue((Segment(THERE, 0, 0), Segment(HERE, 40, AGAIN)), "", 1)
MOVED_ON = MappedQueue((*MOVED.segments, Segment(BEYOND, 60, 2 * AGAIN)), "", 2)
SEND, PULL = RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE
COMMIT, QUERY = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET
MAXIMUM, MINIMUM = RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET
BY_TIME = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP


def send_ext(queue: int = 0, **more: object) -> dict[str, object]:
    return {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        **more,
    }


def pull_ext(offset: int, queue: int = 0, **more: object) -> dict[str, object]:
    return {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **more,
    }


def queue_ext(queue: int = 0, **more: object) -> dict[str, object]:
    return {"consumerGroup": "g", "topic": TOPIC, "queueId": queue, **more}


def stored(mapped: MappedGroup) -> list[tuple[int, int]]:
    """Queue and offset of each message, as they were appended."""
    return [
        (record.queue_id, record.queue_offset)
        for records in mapped.group.appended
        for record in records
        if record.topic == TOPIC
    ]


async def closed(mapped: MappedGroup) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while mapped.processor.mapped.waiting:
            await asyncio.sleep(0.01)


async def answered(mapped: MappedGroup, *asked: RemotingCommand) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while None in map(mapped.code, asked):
            await asyncio.sleep(0.01)


# ---- a young master


async def test_a_young_master_takes_nothing_before_it_has_read_the_maps(
    mapped: MappedGroup,
) -> None:
    mapped.tell(at(HERE))  # what its process knows for another group
    await mapped.begin()
    sent, pulled = mapped.ask(SEND, send_ext()), mapped.ask(PULL, pull_ext(0))
    assert (mapped.code(sent), mapped.code(pulled), stored(mapped)) == (None, None, [])
    assert mapped.processor.mapped.waiting == 2
    mapped.tell(at(HERE))
    assert (mapped.code(sent), stored(mapped)) == (0, [(0, 0)])
    assert mapped.code(pulled) is not None
    assert mapped.processor.mapped.waiting == 0


async def test_who_waits_for_too_long_is_told_to_try_again(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_S", 0.01)
    await mapped.begin()
    sent = mapped.ask(SEND, send_ext())
    await closed(mapped)
    assert mapped.code(sent) == ResponseCode.SYSTEM_BUSY
    mapped.tell(at(HERE))
    assert stored(mapped) == []
    assert mapped.processor.mapped.refused == 1


async def test_waiting_is_bounded(mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WAITING_MAX", 2)
    await mapped.begin()
    sent = [mapped.ask(SEND, send_ext()) for _ in range(3)]
    assert [mapped.code(one) for one in sent] == [None, None, ResponseCode.SYSTEM_BUSY]
    mapped.tell(at(HERE))
    assert [mapped.code(one) for one in sent] == [0, 0, ResponseCode.SYSTEM_BUSY]


async def test_who_waits_is_let_go_with_the_mastership(mapped: MappedGroup) -> None:
    await mapped.begin()
    sent = mapped.ask(SEND, send_ext())
    mapped.processor.close()
    assert mapped.code(sent) == ResponseCode.SYSTEM_BUSY
    later = mapped.ask(SEND, send_ext())
    assert mapped.code(later) == ResponseCode.SYSTEM_BUSY
    assert stored(mapped) == []


async def test_a_map_that_is_here_before_its_topic_is_waited_for(tmp_path: Path) -> None:
    """Else "not found" would be the answer, and the consumer begins at the end."""
    mapped = MappedGroup(tmp_path, has_topic=False)
    try:
        await mapped.begin()
        mapped.tell(at(HERE))
        asked = mapped.ask(QUERY, queue_ext())
        assert mapped.code(asked) is None
        mapped.add_topic()
        async with asyncio.timeout(PATIENCE_S):
            while mapped.code(asked) is None:
                await asyncio.sleep(0.01)
        answer = mapped.answer(asked)
        assert answer is not None
        assert (answer.code, answer.ext) == (0, {"offset": "0"})
    finally:
        mapped.close()


@pytest.mark.parametrize("is_mapped", [True, False])
async def test_a_topic_is_not_unknown_before_the_maps_are_read(
    tmp_path: Path, *, is_mapped: bool
) -> None:
    """The first master of a new group knows neither topics nor maps for a moment."""
    mapped = MappedGroup(tmp_path, has_topic=False)
    try:
        await mapped.begin()
        asked = mapped.ask(QUERY, queue_ext())
        assert mapped.code(asked) is None
        mapped.tell(*([at(HERE)] if is_mapped else []))
        if is_mapped:
            mapped.add_topic()
        async with asyncio.timeout(PATIENCE_S):
            while mapped.code(asked) is None:
                await asyncio.sleep(0.01)
        assert mapped.code(asked) == (0 if is_mapped else ResponseCode.QUERY_NOT_FOUND)
    finally:
        mapped.close()


async def test_all_that_wait_for_a_topic_share_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look had each of them ask for one more: a hundred were a million after three."""
    monkeypatch.setattr(requests, "LOOK_S", 0.02)
    mapped = MappedGroup(tmp_path, has_topic=False)
    try:
        await mapped.begin()
        mapped.tell(at(HERE))
        looks: list[float] = []
        served = mapped.processor.mapped
        changed, now = served.changed, asyncio.get_running_loop().time
        monkeypatch.setattr(
            served, "changed", lambda topics: (looks.append(now()), changed(topics))[1]
        )
        sent = [mapped.ask(SEND, send_ext()) for _ in range(8)]
        async with asyncio.timeout(PATIENCE_S):
            while len(looks) < 3:
                await asyncio.sleep(0)
        assert served.waited == len(sent) * (1 + len(looks))
        assert min(later - at for at, later in pairwise(looks)) > 0.01
    finally:
        mapped.close()


async def test_a_request_that_cannot_be_read_harms_no_other(mapped: MappedGroup) -> None:
    await mapped.begin()
    odd = mapped.ask(PULL, pull_ext(0) | {"queueOffset": "many"})
    sent = mapped.ask(SEND, send_ext())
    mapped.tell(at(HERE))
    assert mapped.code(odd) == ResponseCode.SYSTEM_ERROR
    assert mapped.code(sent) == 0
    mapped.controllers.asked.clear()
    await mapped.question()  # the maps are still read


# ---- sends


async def test_a_send_waits_while_its_queue_moves_and_goes_where_it_went(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1))
    waiting, other = mapped.ask(SEND, send_ext(0)), mapped.ask(SEND, send_ext(1))
    assert (mapped.code(waiting), mapped.code(other)) == (None, 0)
    mapped.tell(MOVED, at(HERE, 1), epoch=2)
    assert stored(mapped) == [(1, 0)]
    group, command, _ = mapped.masters.asked[-1]
    assert group == THERE
    assert command.ext is not None
    assert (command.ext["queueId"], command.ext[PHYSICAL]) == (str(AGAIN), "2")
    mapped.masters.answer(0, {"queueId": "0", "queueOffset": "40", "msgId": "x"})
    answer = mapped.answer(waiting)
    assert answer is not None
    assert (answer.code, answer.ext["queueOffset"]) == (0, "40")  # type: ignore[index]


async def test_a_move_that_is_taken_back_lets_sends_in(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE))
    sent = mapped.ask(SEND, send_ext())
    mapped.tell(at(HERE, 0), epoch=2)
    assert (mapped.code(sent), stored(mapped)) == (0, [(0, 0)])


async def test_the_first_message_of_a_segment_goes_on_where_the_last_one_ended(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(CAME)
    assert mapped.code(mapped.ask(SEND, send_ext())) == 0
    assert stored(mapped) == [(AGAIN, 40)]
    older = mapped.answer(mapped.ask(SEND, send_ext(), version=OLDER))
    assert older is not None
    assert older.ext is not None
    assert (older.ext["queueId"], older.ext["queueOffset"]) == ("0", "41")


@pytest.mark.parametrize(
    ("outcome", "may_be_stored"),
    [(RequestTimeout("late"), True), (Busy("nobody is there"), False)],
)
async def test_a_send_whose_answer_is_lost_may_be_stored(
    mapped: MappedGroup, outcome: Exception, *, may_be_stored: bool
) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    sent = mapped.ask(SEND, send_ext())
    mapped.masters.asked.pop()[2](outcome)  # type: ignore[arg-type]
    answer = mapped.answer(sent)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (MAY_BE_STORED in (answer.ext or {})) is may_be_stored


@pytest.mark.parametrize(
    ("properties", "is_resent", "is_said"),
    [
        ("UNIQ_KEY\x01k\x02", True, True),
        ("UNIQ_KEY\x01k\x02", False, False),
        ("KEYS\x01k\x02", True, False),  # it could be taken for another client's
    ],
)
async def test_a_send_that_the_last_master_may_have_passed_on_says_so(
    mapped: MappedGroup, properties: str, *, is_resent: bool, is_said: bool
) -> None:
    await mapped.begin()
    mapped.tell(at(THERE))
    mapped.connection.attrs[RESENT] = Marks({mapped._opaque + 1} if is_resent else ())
    mapped.ask(SEND, send_ext(properties=properties))
    ((_, command, _),) = mapped.masters.asked
    assert (PASSED_AGAIN in (command.ext or {})) is is_said


@pytest.mark.parametrize("word", ["true", "only"])
async def test_a_client_does_not_say_itself_that_a_send_was_passed_on(
    mapped: MappedGroup, word: str
) -> None:
    await mapped.begin()
    mapped.tell(at(THERE))
    mapped.ask(SEND, send_ext(properties="UNIQ_KEY\x01k\x02", **{PASSED_AGAIN: word}))
    ((_, command, _),) = mapped.masters.asked
    assert PASSED_AGAIN not in (command.ext or {})


def resent(mapped: MappedGroup) -> RemotingCommand:
    """A send with a key that an earlier master may have had, of which nothing is known here."""
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    mapped.connection.attrs[RESENT] = Marks({mapped._opaque + 1})
    return mapped.ask(SEND, send_ext(properties="UNIQ_KEY\x01k\x02"))


@pytest.mark.parametrize(
    ("outcome", "code", "is_stored_here"),
    [
        (0, 0, False),
        (ResponseCode.QUERY_NOT_FOUND, 0, True),
        (ResponseCode.NOT_LEADER_FOR_QUEUE, 0, True),  # an older version
        (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE, False),
        (RequestTimeout("late"), ResponseCode.SYSTEM_BUSY, False),
        (Busy("nobody is there"), ResponseCode.SYSTEM_BUSY, False),
    ],
)
async def test_a_send_is_looked_for_where_its_queue_was_before_it_moved(
    mapped: MappedGroup, outcome: int | Exception, code: int, *, is_stored_here: bool
) -> None:
    await mapped.begin()
    mapped.tell(CAME)
    sent = resent(mapped)
    assert (mapped.code(sent), stored(mapped)) == (None, [])
    ((group, command, done),) = mapped.masters.asked
    ext = command.ext or {}
    assert (group, ext["queueId"], ext[PHYSICAL], ext[PASSED_AGAIN]) == (THERE, "0", "1", "only")
    place = {"queueId": "0", "queueOffset": "7"}
    done(outcome if isinstance(outcome, Exception) else reply(command, outcome, "", place))
    await answered(mapped, sent)
    answer = mapped.answer(sent)
    assert answer is not None
    assert (answer.code, stored(mapped)) == (code, [(AGAIN, 40)] if is_stored_here else [])
    if code:
        assert MAY_BE_STORED in (answer.ext or {})
    else:
        assert (answer.ext or {})["queueOffset"] == ("40" if is_stored_here else "7")


async def test_who_had_a_queue_before_says_where_a_send_is_and_stores_nothing(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    send = send_ext(properties="UNIQ_KEY\x01k\x02")
    mapped.ask(SEND, send)
    mapped.tell(MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 1, AGAIN)), "", 1), epoch=2)
    question = {PHYSICAL: 2, PASSED_AGAIN: "only"}
    there = mapped.ask(SEND, {**send, **question})
    absent = mapped.ask(SEND, send_ext(properties="UNIQ_KEY\x01l\x02", **question))
    await answered(mapped, there, absent)
    answer = mapped.answer(there)
    assert answer is not None
    assert (answer.code, (answer.ext or {})["queueOffset"]) == (0, "0")
    assert mapped.code(absent) == ResponseCode.QUERY_NOT_FOUND
    assert stored(mapped) == [(0, 0)]


async def test_a_send_is_looked_for_in_each_segment_also_in_this_groups_own(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    mapped.ask(SEND, send_ext(properties="UNIQ_KEY\x01k\x02"))
    back = (Segment(HERE, 0, 0), Segment(THERE, 1, AGAIN), Segment(HERE, 5, 2 * AGAIN))
    mapped.tell(MappedQueue(back, "", 2), epoch=2)
    sent = resent(mapped)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    await answered(mapped, sent)
    answer = mapped.answer(sent)
    assert answer is not None
    assert (answer.code, (answer.ext or {})["queueOffset"]) == (0, "0")
    assert stored(mapped) == [(0, 0)]


async def test_a_send_is_looked_for_again_if_its_queue_moves_meanwhile(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(CAME)
    resent(mapped)
    mapped.tell(MappedQueue((*CAME.segments, Segment(BEYOND, 40, 2 * AGAIN)), "", 2), epoch=2)
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    async with asyncio.timeout(PATIENCE_S):
        while not mapped.masters.asked:  # until it was looked for here
            await asyncio.sleep(0.001)
    ((group, command, _),) = mapped.masters.asked
    assert (group, (command.ext or {})[PASSED_AGAIN]) == (THERE, "only")
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    ((group, command, _),) = mapped.masters.asked
    assert (group, (command.ext or {})[PASSED_AGAIN]) == (BEYOND, "true")
    assert stored(mapped) == []


async def test_a_send_that_was_passed_on_before_is_not_stored_again(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(CAME)
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    send = send_ext(AGAIN, properties="UNIQ_KEY\x01k\x02", **{PHYSICAL: 1})
    first = mapped.ask(SEND, send)
    again = mapped.ask(SEND, {**send, PASSED_AGAIN: "true"})
    other = mapped.ask(SEND, {**send, "bornTimestamp": 2})
    await answered(mapped, again, other)
    answers = [mapped.answer(one) for one in (first, again, other)]
    places = [((answer and answer.ext) or {}).get("queueOffset") for answer in answers]
    assert places == ["40", "40", "41"]
    assert {((answer and answer.ext) or {}).get("queueId") for answer in answers} == {"0"}


async def test_what_a_former_master_passed_on_is_not_stored_when_it_comes_late(
    mapped: MappedGroup,
) -> None:
    """The next one has passed it on again; what comes meanwhile does not miss that either."""
    await mapped.begin()
    mapped.tell(CAME)
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    mapped.group.holding = True
    send = send_ext(AGAIN, properties="UNIQ_KEY\x01k\x02", **{PHYSICAL: 1})
    other = mapped.ask(SEND, {**send, "bornTimestamp": 2})
    again, meanwhile = mapped.ask(SEND, {**send, PASSED_AGAIN: "true"}), mapped.ask(SEND, send)
    mapped.group.confirm()
    await answered(mapped, other)
    mapped.group.holding = False
    mapped.group.confirm()
    await answered(mapped, again, meanwhile)
    late = mapped.ask(SEND, send)
    await answered(mapped, late)
    answers = [mapped.answer(one) for one in (again, meanwhile, late)]
    assert [((one and one.ext) or {}).get("queueOffset") for one in answers] == ["41"] * 3
    assert stored(mapped) == [(AGAIN, 40), (AGAIN, 41)]


async def test_what_was_passed_on_twice_is_remembered_for_a_while(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_again, "AGAIN_MAX", 1)
    await mapped.begin()
    mapped.tell(CAME)
    resent = mapped.processor.resent
    resent._clock = lambda: mapped.group.now_ms / 1000
    send = send_ext(AGAIN, properties="UNIQ_KEY\x01k\x02", **{PHYSICAL: 1})
    for born in (1, 2):
        again = {**send, "bornTimestamp": born, PASSED_AGAIN: "true"}
        await answered(mapped, mapped.ask(SEND, again))
    assert len(resent.again) == 1, "and so many at most"
    await answered(mapped, mapped.ask(SEND, {**send, "bornTimestamp": 2}))
    assert stored(mapped) == [(AGAIN, 40), (AGAIN, 41)]
    resent.again.remember(b"another", 2 * resent.again._kept_s + asyncio.get_running_loop().time())
    await answered(mapped, mapped.ask(SEND, {**send, "bornTimestamp": 2}))
    assert stored(mapped) == [(AGAIN, 40), (AGAIN, 41), (AGAIN, 42)]


async def test_a_send_that_was_passed_on_before_holds_up_no_other(mapped: MappedGroup) -> None:
    """All clients of the group that passes it on share one connection, whatever they say."""
    await mapped.begin()
    mapped.tell(CAME)
    mapped.processor.resent._clock = lambda: mapped.group.now_ms / 1000
    send = send_ext(AGAIN, properties="UNIQ_KEY\x01k\x02", **{PHYSICAL: 1, PASSED_AGAIN: "true"})
    with pytest.raises(HeaderError):  # which is answered as any other that cannot be read
        mapped.ask(SEND, {**send, "bornTimestamp": "once"})
    mapped.group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "too few are in sync")
    again = mapped.ask(SEND, send)
    plain = mapped.ask(SEND, send_ext(AGAIN, **{PHYSICAL: 1}))
    assert (mapped.code(again), mapped.code(plain)) == (None, ResponseCode.SERVICE_NOT_AVAILABLE)
    mapped.group.refusal = None
    async with asyncio.timeout(PATIENCE_S):
        while mapped.code(again) is None:
            await asyncio.sleep(0.01)
    assert mapped.code(again) == 0
    assert RESENT not in mapped.connection.attrs


@pytest.mark.parametrize("is_resent", [True, False])
@pytest.mark.parametrize("how", ["nobody is there", "refused there", "it moves for too long"])
async def test_what_an_earlier_master_may_have_passed_on_is_never_plainly_refused(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch, how: str, *, is_resent: bool
) -> None:
    """Who is, sends it elsewhere, and it may be there twice."""
    monkeypatch.setattr(requests, "WAIT_S", 0.05)
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE) if "moves" in how else MOVED)
    mapped.connection.attrs[RESENT] = Marks({mapped._opaque + 1} if is_resent else ())
    sent = mapped.ask(SEND, send_ext(properties="UNIQ_KEY\x01k\x02"))
    if "nobody" in how:
        mapped.masters.asked.pop()[2](Busy("nobody is there"))
    elif "refused" in how:
        mapped.masters.answer(ResponseCode.SYSTEM_BUSY)
    await closed(mapped)
    answer = mapped.answer(sent)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (MAY_BE_STORED in (answer.ext or {})) is is_resent


async def test_a_request_of_another_group_is_about_a_mapped_topic(tmp_path: Path) -> None:
    """It knows more of the topic than this one, for which it would be unknown."""
    mapped = MappedGroup(tmp_path, has_topic=False)
    try:
        await mapped.begin()
        mapped.tell()
        asked = mapped.ask(QUERY, queue_ext(**{PHYSICAL: 1}))
        assert mapped.code(asked) is None
    finally:
        mapped.close()


async def test_who_is_told_that_the_queue_is_elsewhere_looks_again(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    mapped.controllers.asked.clear()
    sent = mapped.ask(SEND, send_ext())
    mapped.masters.answer(ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert mapped.code(sent) is None
    await mapped.question()
    mapped.tell(MOVED_ON, epoch=3)
    assert mapped.masters.asked[-1][0] == BEYOND
    mapped.masters.answer(0)
    assert mapped.code(sent) == 0


async def test_who_is_told_too_late_that_the_queue_is_elsewhere_tries_again(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_S", 0.0)
    await mapped.begin()
    mapped.tell(MOVED)
    asked = [mapped.ask(SEND, send_ext()), mapped.ask(PULL, pull_ext(61))]
    for _ in asked:
        mapped.masters.answer(ResponseCode.NOT_LEADER_FOR_QUEUE)
    await closed(mapped)
    assert [mapped.code(one) for one in asked] == [ResponseCode.SYSTEM_BUSY] * 2


async def test_a_store_that_is_asked_past_the_map_takes_nothing_for_what_is_not_here(
    mapped: MappedGroup,
) -> None:
    """The guard behind all ways in: a send that waited elsewhere while the queue went."""
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE))
    handler = mapped.processor._handlers[SEND]
    asked = mapped.ask(SEND, send_ext())
    answer = handler(mapped.connection, asked)  # type: ignore[arg-type]
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert stored(mapped) == []


async def test_a_mapped_queue_is_filtered_by_sql(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    for value in (1, 5, 2):
        properties = f"v\x01{value}\x02"
        assert mapped.code(mapped.ask(SEND, send_ext(properties=properties))) == 0
    wanted = {"expressionType": "SQL92", "subscription": "v > 2"}
    answer = mapped.answer(mapped.ask(PULL, pull_ext(0) | wanted))
    assert answer is not None
    assert answer.ext is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "3")
    assert [record.queue_offset for record in decode_records(answer.body)] == [1]


# ---- what other masters ask


@pytest.mark.parametrize(
    ("queue", "epoch", "code"),
    [
        (AGAIN, 1, 0),
        (0, 1, ResponseCode.NOT_LEADER_FOR_QUEUE),  # an earlier stay
        (1, 1, ResponseCode.NOT_LEADER_FOR_QUEUE),
        (9, 1, ResponseCode.NOT_LEADER_FOR_QUEUE),
        (1, 2, None),  # who asks knows more: it is read first
        (2, 1, None),  # it moves
    ],
)
@pytest.mark.parametrize("what", [SEND, COMMIT])
async def test_what_is_written_for_others_is_only_for_what_is_taken_here(
    mapped: MappedGroup, what: RequestCode, queue: int, epoch: int, code: int | None
) -> None:
    await mapped.begin()
    mapped.tell(CAME, at(THERE, 1), at(HERE, 2, THERE))
    ext = send_ext(queue) if what == SEND else queue_ext(queue, commitOffset=7)
    asked = mapped.ask(what, {**ext, PHYSICAL: epoch})
    if code == 0 and what == COMMIT:
        assert mapped.group.store.committed.query("g", TOPIC, AGAIN) == 7
        return
    assert mapped.code(asked) == code
    assert mapped.masters.asked == [], "what was passed on is never passed on again"
    assert stored(mapped) == ([(AGAIN, 40)] if code == 0 else [])


async def test_a_pull_of_a_segment_that_is_not_known_here_waits_for_the_map(
    mapped: MappedGroup,
) -> None:
    """Else the reader would be sent back to 0, where an empty queue begins."""
    await mapped.begin()
    mapped.tell(at(THERE))
    asked = mapped.ask(PULL, pull_ext(40, AGAIN, **{PHYSICAL: 2}))
    assert mapped.code(asked) is None
    await mapped.question()
    mapped.tell(CAME, epoch=2)
    answer = mapped.answer(asked)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext is not None
    assert answer.ext["nextBeginOffset"] == "40"


# ---- reads


async def test_a_pull_of_an_empty_segment_that_has_been_left_leads_nobody_back(
    mapped: MappedGroup,
) -> None:
    """Who asks knows an older map, in which messages are to come there."""
    left = MappedQueue((*CAME.segments, Segment(THERE, 40, 2 * AGAIN)), "", 2)
    await mapped.begin()
    mapped.tell(left, epoch=3)
    asked = mapped.ask(PULL, pull_ext(40, AGAIN, **{PHYSICAL: 2}))
    answer = mapped.answer(asked)
    assert answer is not None
    assert (answer.ext or {})["nextBeginOffset"] == "40"


async def test_a_pull_by_an_older_map_from_behind_the_end_is_sent_to_look_again(
    mapped: MappedGroup,
) -> None:
    """The reader was at the group that the queue has gone to, and then asked a third one."""
    await mapped.begin()
    mapped.tell(at(HERE))
    for _ in range(2):
        assert mapped.code(mapped.ask(SEND, send_ext())) == 0
    left = MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 2, AGAIN)), "", 1)
    mapped.tell(left, epoch=2)
    within, at_end, behind = (
        mapped.ask(PULL, pull_ext(offset, **{PHYSICAL: 1})) for offset in (1, 2, 3)
    )
    assert mapped.code(within) == ResponseCode.SUCCESS
    assert mapped.code(at_end) == ResponseCode.PULL_NOT_FOUND
    assert mapped.code(behind) == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_who_passed_a_pull_on_by_an_older_map_looks_again(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    pulled = mapped.ask(PULL, pull_ext(61))
    assert mapped.masters.asked[-1][0] == THERE
    mapped.masters.answer(ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert mapped.code(pulled) is None
    mapped.tell(MOVED_ON, epoch=2)
    group, command, _ = mapped.masters.asked[-1]
    assert (group, command.ext and command.ext["queueId"]) == (BEYOND, str(2 * AGAIN))
    mapped.masters.answer(ResponseCode.PULL_NOT_FOUND, {"nextBeginOffset": "61"})
    assert mapped.code(pulled) == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("is_passed_on", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
async def test_a_reader_is_not_led_back_by_who_has_not_heard_that_the_queue_has_moved(
    mapped: MappedGroup, *, is_passed_on: bool, is_moved: bool
) -> None:
    """Its end is told, the next group has taken a message, and a reader has read that."""
    await mapped.begin()
    mapped.tell(at(HERE))
    for _ in range(2):
        assert mapped.code(mapped.ask(SEND, send_ext())) == 0
    mapped.tell(at(HERE, 0, THERE), epoch=2)
    more = {PHYSICAL: 2} if is_passed_on else {}
    at_end, behind = (mapped.ask(PULL, pull_ext(offset, **more)) for offset in (2, 3))
    assert mapped.code(at_end) == ResponseCode.PULL_NOT_FOUND
    assert mapped.code(behind) is None
    mapped.tell(at(HERE, 0, BEYOND), epoch=3)
    assert mapped.code(behind) is None, "it goes elsewhere"
    if not is_moved:
        mapped.tell(at(HERE), epoch=4)
        answer = mapped.answer(behind)
        assert answer is not None
        assert (answer.ext or {})["nextBeginOffset"] == "2", "there is no such message anywhere"
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        return
    mapped.tell(MappedQueue((Segment(HERE, 0, 0), Segment(BEYOND, 2, AGAIN)), "", 1), epoch=4)
    if is_passed_on:
        assert mapped.code(behind) == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert mapped.masters.asked == []
        return
    group, command, _ = mapped.masters.asked[-1]
    assert (group, command.ext and command.ext["queueId"]) == (BEYOND, str(AGAIN))
    mapped.masters.answer(ResponseCode.SUCCESS, {"nextBeginOffset": "4"})
    assert mapped.code(behind) == ResponseCode.SUCCESS


async def test_a_reader_behind_the_end_of_a_queue_that_does_not_come_to_move_hears_of_it(
    mapped: MappedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_S", 0.01)
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE))
    pulled = mapped.ask(PULL, pull_ext(3))
    await closed(mapped)
    assert mapped.code(pulled) == ResponseCode.SYSTEM_BUSY
    older = mapped.ask(PULL, pull_ext(3), version=OLDER)
    assert mapped.code(older) == ResponseCode.PULL_OFFSET_MOVED, "all that it sees is here"


async def test_a_pull_is_served_where_the_message_is(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    waits = {"suspendTimeoutMillis": 15_000, "sysFlag": 7}
    pulled = mapped.ask(PULL, pull_ext(40, **waits))
    group, command, _ = mapped.masters.asked[-1]
    assert (group, command.ext and command.ext["queueId"]) == (THERE, str(AGAIN))
    assert command.ext is not None
    assert int(command.ext["suspendTimeoutMillis"]) < 5_000, "a silent connection is closed"
    assert command.ext["sysFlag"] == "6", "what it commits belongs to another queue"
    mapped.masters.answer(ResponseCode.PULL_NOT_FOUND, {"nextBeginOffset": "40"})
    assert mapped.code(pulled) == ResponseCode.PULL_NOT_FOUND
    assert mapped.code(mapped.ask(PULL, pull_ext(39))) is not None
    assert mapped.masters.asked == []


async def test_a_reader_at_the_end_of_a_segment_asks_again_once_the_queue_has_moved(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    pulled = mapped.ask(PULL, pull_ext(0, suspendTimeoutMillis=15_000, sysFlag=6))
    assert mapped.code(pulled) is None
    mapped.tell(at(HERE), epoch=1)
    assert mapped.code(pulled) is None, "nothing changed"
    mapped.tell(MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 0, AGAIN)), "", 1), epoch=2)
    assert mapped.code(pulled) == ResponseCode.PULL_NOT_FOUND


async def test_messages_of_a_group_that_is_gone_are_passed_over(mapped: MappedGroup) -> None:
    await mapped.begin()
    serving = {HERE: "a:1", BEYOND: ""}
    mapped.tell(
        MappedQueue((*MOVED.segments, Segment(HERE, 60, 2 * AGAIN)), "", 2), masters=serving
    )
    answer = mapped.answer(mapped.ask(PULL, pull_ext(45)))
    assert answer is not None
    assert answer.ext is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "60")
    assert mapped.code(mapped.ask(QUERY, queue_ext(setZeroIfNotFound="false"))) == 22
    mapped.tell(MOVED_ON, epoch=3, masters=serving)  # without a master, and not gone
    mapped.ask(PULL, pull_ext(70))
    assert [group for group, _, _ in mapped.masters.asked] == [BEYOND]
    mapped.masters.asked.clear()
    mapped.tell(MOVED, epoch=4, masters={HERE: "a:1"})  # its open segment is waited for
    mapped.ask(PULL, pull_ext(45))
    assert [group for group, _, _ in mapped.masters.asked] == [THERE]


async def test_what_a_group_had_committed_before_is_told_while_its_newest_offset_is_away(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    anew = MappedQueue((*MOVED.segments, Segment(HERE, 60, 2 * AGAIN)), "", 2)
    mapped.tell(anew, masters={HERE: "a:1"})
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 33)
    told = mapped.answer(mapped.ask(QUERY, queue_ext(setZeroIfNotFound="false")))
    assert told is not None
    assert told.ext is not None, "it would begin at the end, past what it has not read"
    assert told.ext["offset"] == "33"
    mapped.tell(anew, epoch=3, masters={HERE: "a:1", THERE: "b:1"})
    asked = mapped.ask(QUERY, queue_ext(setZeroIfNotFound="false"))
    assert mapped.masters.asked[-1][0] == THERE
    mapped.masters.answer(ResponseCode.SUCCESS, {"offset": "45"})
    told = mapped.answer(asked)
    assert told is not None
    assert (told.ext or {})["offset"] == "45", "it is back with what it was told"


# ---- offsets


async def test_committed_offsets_are_where_messages_are_taken(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(CAME, MOVED, at(HERE, 2, THERE))
    committed = mapped.group.store.committed
    mapped.ask(COMMIT, queue_ext(0, commitOffset=41))
    assert committed.query("g", TOPIC, AGAIN) == 41
    mapped.ask(COMMIT, queue_ext(1, commitOffset=5))
    assert mapped.masters.asked[-1][0] == THERE
    moving = mapped.ask(COMMIT, queue_ext(2, commitOffset=5))
    assert mapped.code(moving) is None
    assert committed.query("g", TOPIC, 2) is None, "its next master may have a newer one"
    mapped.ask(COMMIT, queue_ext(1, commitOffset=9), version=OLDER)
    assert committed.query("g", TOPIC, 0) == 9, "others know this group's own queue only"


async def test_a_committed_offset_is_looked_for_back_through_the_segments(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(MOVED_ON)
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 33)
    asked = mapped.ask(QUERY, queue_ext())
    for group in (BEYOND, THERE):
        assert mapped.masters.asked[-1][0] == group
        ext = mapped.masters.asked[-1][1].ext
        assert ext is not None
        assert ext["setZeroIfNotFound"] == "false", "0 would be taken for what was committed"
        assert (AS_NEWEST in ext) is (group == BEYOND)
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    answer = mapped.answer(asked)
    assert answer is not None
    assert (answer.code, answer.ext) == (0, {"offset": "33"})
    again = mapped.ask(QUERY, queue_ext())
    mapped.masters.answer(0, {"offset": "61"})
    assert (mapped.answer(again) or again).ext == {"offset": "61"}
    unknown = mapped.ask(QUERY, queue_ext())
    mapped.masters.asked.pop()[2](Busy("nobody"))
    assert mapped.code(unknown) == ResponseCode.SYSTEM_BUSY, "33 may be old"


async def test_a_committed_offset_is_not_told_while_the_queue_may_be_elsewhere_already(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(at(HERE, 0, THERE))
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 33)
    asked = mapped.ask(QUERY, queue_ext())
    assert mapped.code(asked) is None, "a newer one may be committed there"
    older = mapped.answer(mapped.ask(QUERY, queue_ext(), version=OLDER))
    assert older is not None
    assert older.ext == {"offset": "33"}, "others know this group's own queue only"
    mapped.tell(MOVED, epoch=2)
    assert mapped.masters.asked[-1][0] == THERE
    mapped.masters.answer(0, {"offset": "41"})
    assert (mapped.answer(asked) or asked).ext == {"offset": "41"}
    again = mapped.ask(QUERY, queue_ext())
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert (mapped.answer(again) or again).ext == {"offset": "33"}


async def test_a_newest_offset_is_told_only_where_commits_are_taken(mapped: MappedGroup) -> None:
    """Who asks by an older map would tell its client an old one, or that there is none."""
    await mapped.begin()
    mapped.tell(MOVED, at(HERE, 1, THERE), at(HERE, 2), epoch=2)
    committed = mapped.group.store.committed
    assert all(committed.commit("g", TOPIC, queue, 33) for queue in range(3))
    newest = {PHYSICAL: 1, AS_NEWEST: "true"}
    left, moving, here = (mapped.ask(QUERY, queue_ext(queue, **newest)) for queue in range(3))
    assert mapped.code(left) == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert mapped.code(moving) is None
    assert (mapped.answer(here) or here).ext == {"offset": "33"}
    older = mapped.ask(QUERY, queue_ext(0, **{PHYSICAL: 2}))
    assert (mapped.answer(older) or older).ext == {"offset": "33"}
    moved = MappedQueue((Segment(HERE, 0, 1), Segment(THERE, 0, 1 + AGAIN)), "", 1)
    mapped.tell(MOVED, moved, at(HERE, 2), epoch=3)
    assert mapped.code(moving) == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_who_asked_for_an_offset_by_an_older_map_looks_again(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 33)
    asked = mapped.ask(QUERY, queue_ext())
    mapped.masters.answer(ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert mapped.code(asked) is None
    mapped.tell(MOVED_ON, epoch=2)
    for group in (BEYOND, THERE):
        assert mapped.masters.asked[-1][0] == group
        mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert (mapped.answer(asked) or asked).ext == {"offset": "33"}


async def test_offsets_committed_at_a_segment_that_never_had_a_message_are_found(
    mapped: MappedGroup,
) -> None:
    await mapped.begin()
    mapped.tell(MappedQueue((Segment(HERE, 0, 0), Segment(THERE, 0, AGAIN)), "", 1))
    assert mapped.group.store.committed.commit("g", TOPIC, 0, 0)
    asked = mapped.ask(QUERY, queue_ext(setZeroIfNotFound="false"))
    mapped.masters.answer(ResponseCode.QUERY_NOT_FOUND)
    assert (mapped.answer(asked) or asked).ext == {"offset": "0"}


async def test_bounds_of_a_queue(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(CAME, MOVED)
    highest = mapped.answer(mapped.ask(MAXIMUM, queue_ext(0)))
    assert highest is not None
    assert highest.ext == {"offset": "40"}, "the open segment has no message yet"
    mapped.ask(MINIMUM, queue_ext(0))
    assert mapped.masters.asked[-1][0] == THERE
    mapped.ask(MAXIMUM, queue_ext(1))
    elsewhere = mapped.masters.asked[-1]
    assert elsewhere[0] == THERE
    elsewhere_asked = mapped.ask(MAXIMUM, queue_ext(1))
    mapped.masters.answer(0, {"offset": "0"})
    assert (mapped.answer(elsewhere_asked) or elsewhere_asked).ext == {"offset": "40"}


async def test_a_time_is_looked_for_back_through_the_segments(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(MOVED)
    asked = mapped.ask(BY_TIME, queue_ext(timestamp=1))
    mapped.masters.answer(0, {"offset": "40"})  # it is not within the last one
    assert (mapped.answer(asked) or asked).ext == {"offset": "0"}
    late = mapped.ask(BY_TIME, queue_ext(timestamp=1))
    mapped.masters.answer(0, {"offset": "44"})
    assert (mapped.answer(late) or late).ext == {"offset": "44"}


async def test_a_queue_that_the_topic_does_not_have(mapped: MappedGroup) -> None:
    await mapped.begin()
    mapped.tell(at(HERE))
    for code, ext in ((SEND, send_ext(1)), (PULL, pull_ext(0, 1)), (COMMIT, queue_ext(1))):
        assert mapped.code(mapped.ask(code, {**ext, "commitOffset": 0})) == 29
    assert mapped.code(mapped.ask(QUERY, queue_ext(1), version=STATIC)) == 29


# ---- the next process


async def test_a_requests_own_number_is_kept_for_who_serves_it_next(mapped: MappedGroup) -> None:
    """There the queue may be another one, and no signature fits a number that nobody signed."""
    await mapped.begin()
    mapped.tell(CAME)
    asked = mapped.ask(SEND, send_ext())
    assert stored(mapped) == [(AGAIN, 40)]
    assert mapped.connection.words[id(asked)] == {
        name: str(value) for name, value in send_ext().items()
    }
