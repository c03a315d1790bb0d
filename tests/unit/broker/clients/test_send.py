"""Sending: what is stored, what is answered, and in which order it is refused."""

from __future__ import annotations

import pytest
from gantry_broker.clients import topic_rules
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import (
    BatchMessage,
    MessageRecord,
    RecordRun,
    decode_properties,
    decode_record,
    encode_batch,
    offset_msg_id,
)
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from gantry_protocol.send_answer import MAY_BE_STORED
from support.group_view import FakeGroup

# The header of a captured 310 (Java 5.3.3).
V2: dict[str, object] = {
    "a": "pg",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
HALF = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
# What Go sends as 10.
V1: dict[str, object] = {
    "producerGroup": "pg",
    "topic": "TopicTest",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 1,
    "sysFlag": 0,
    "bornTimestamp": 1700000000000,
    "flag": 0,
    "properties": "TAGS\x01TagA\x02",
    "reconsumeTimes": 0,
    "unitMode": False,
    "maxReconsumeTimes": 16,
    "batch": False,
}


def _v2(**changes: object) -> dict[str, object]:
    merged = {**V2, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _stored(group: FakeGroup, answer) -> MessageRecord:
    """The record an answer speaks of."""
    queue_id, number = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
    for records in group.appended:
        for record in records:
            if (record.queue_id, record.queue_offset) == (queue_id, number):
                found = decode_record(group.messages.view(record.physical_offset) or b"")
                host, port = group.store_host
                wanted = offset_msg_id(host, port, found.physical_offset)
                assert wanted in answer.ext["msgId"].split(",")
                return found
    raise AssertionError("nothing was stored")


@pytest.mark.parametrize(
    ("code", "ext"), [pytest.param(310, V2, id="v2"), pytest.param(10, V1, id="v1")]
)
def test_a_send_is_stored_as_it_came_and_answered_in_full(client, group, code, ext) -> None:
    answer = client.call(code, ext, b"hello")
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext["queueId"] == "1"
    assert answer.ext["queueOffset"] == "0"
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    record = _stored(group, answer)
    assert (record.topic, record.queue_id, record.body) == ("TopicTest", 1, b"hello")
    assert (record.born_timestamp, record.born_host) == (1700000000000, ("10.1.1.1", 5000))
    assert record.store_host == group.store_host
    properties = decode_properties(record.properties)
    assert properties == {
        "TAGS": "TagA",
        "UNIQ_KEY": answer.ext["transactionId"],
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert len(properties["UNIQ_KEY"]) == 32


@pytest.mark.parametrize("end", ["\x02", ""], ids=["5.x", "4.9"])
def test_the_clients_own_id_is_kept(client, group, end) -> None:
    answer = client.call(310, _v2(i="UNIQ_KEY\x01ABC" + end), b"x")
    assert answer.ext["transactionId"] == "ABC"
    assert decode_properties(_stored(group, answer).properties)["UNIQ_KEY"] == "ABC"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param("TAGS\x01TagA", {"TAGS": "TagA"}, id="4.9 sends no last separator"),
        pytest.param("POP_CK\x01x\x02A\x01b\x02", {"A": "b"}, id="POP_CK is not stored"),
        pytest.param("CLUSTER\x01other\x02TRACE_ON\x01no\x02", {}, id="ours replace the client's"),
        pytest.param(None, {}, id="none"),
    ],
)
def test_properties(client, group, sent, expected) -> None:
    answer = client.call(310, _v2(i=sent), b"x")
    found = decode_properties(_stored(group, answer).properties)
    ours = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    assert found == {**expected, **ours, "UNIQ_KEY": answer.ext["transactionId"]}


def test_the_answer_waits_for_the_confirmation(client, group) -> None:
    group.holding = True
    asked, answer = client.ask(310, V2, b"x")
    assert answer is None
    group.confirm()
    assert client.conn.answer_to(asked).code == 0


def test_not_waiting_for_replication_is_not_granted(client, group) -> None:
    group.holding = True
    _, answer = client.ask(310, _v2(i="WAIT\x01false\x02"), b"x")
    assert answer is None


def test_stored_but_not_confirmed_is_12_with_all_positions(client, group) -> None:
    group.holding = True
    asked, _ = client.ask(310, V2, b"x")
    group.give_up()
    answer = client.conn.answer_to(asked)
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
    assert answer.ext["msgId"]


def test_a_send_in_doubt_is_answered_by_a_code_that_every_client_tries_again(client, group) -> None:
    """12 is a result to Java and Go, which then never ask the next master."""
    group.holding = True
    asked, _ = client.ask(310, V2, b"x")
    group.doubt()
    answer = client.conn.answer_to(asked)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "cut off")
    assert answer.ext[MAY_BE_STORED] == "true"
    assert "msgId" not in answer.ext


def test_a_oneway_send_is_stored_and_not_answered(client, group) -> None:
    _, answer = client.ask(310, V2, b"x", oneway=True)
    assert answer is None
    assert len(group.appended) == 1


def test_queue_minus_one_takes_the_queues_in_turn(client) -> None:
    answers = [client.call(310, _v2(e=-1), b"x") for _ in range(8)]
    assert sorted(int(answer.ext["queueId"]) for answer in answers) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("changes", "body", "code", "words"),
    [
        pytest.param({"b": " "}, b"x", 29, "blank", id="blank topic"),
        pytest.param({"b": "a b"}, b"x", 29, "illegal characters", id="topic characters"),
        pytest.param({"b": "t" * 128}, b"x", 29, "max length 127", id="topic length"),
        # Upstream's topic of delayed messages has this very name.
        pytest.param({"b": SCHEDULE_TOPIC}, b"x", 16, "forbidden", id="system topic"),
        pytest.param({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, b"x", 16, "forbidden", id="half topic"),
        pytest.param({"b": "GANTRY_SYS_TOPICS"}, b"x", 16, "forbidden", id="our topic table"),
        pytest.param({"b": "GANTRY_SYS_OFFSETS"}, b"x", 16, "forbidden", id="our offsets"),
        pytest.param({"b": "TBW102"}, b"x", 16, "forbidden", id="the default topic itself"),
        pytest.param({"b": "New", "c": "Other"}, b"x", 17, "apply first", id="no auto-creation"),
        pytest.param({"e": 4}, b"x", 29, r"queueId[4] is illegal", id="queue id"),
        pytest.param({}, b"", 13, "body is empty", id="empty body"),
        pytest.param({}, bytes(4 * 1024 * 1024 + 1), 13, "4194305 bytes", id="body too large"),
        pytest.param({"i": "a\x01" + "b" * 32767}, b"x", 13, "properties", id="properties"),
        pytest.param({"i": "a\x01b\0\x02"}, b"x", 13, "zero byte", id="zero byte"),
        pytest.param({"f": 4}, b"x", 13, "another step", id="prepared, no half message"),
        pytest.param({"f": 8}, b"x", 13, "another step", id="committed by the client"),
        pytest.param({"f": 12, "i": HALF}, b"x", 13, "another step", id="half, rolled back"),
        pytest.param({"i": "TRAN_MSG\x01true\x02"}, b"x", 13, "PGROUP", id="half of nobody"),
        pytest.param({"i": HALF + "DELAY\x011\x02"}, b"x", 13, "delayed", id="half and delayed"),
        pytest.param({"i": "DELAY\x01soon\x02"}, b"x", 13, "no delay level", id="delay in words"),
        pytest.param({"i": "TIMER_DELAY_MS\x01soon\x02"}, b"x", 13, "no time", id="in words"),
        pytest.param({"i": "TIMER_DELAY_SEC\x013456001\x02"}, b"x", 13, "40 days", id="far timer"),
        pytest.param({"i": HALF + "TIMER_DELAY_MS\x013\x02"}, b"x", 13, "delayed", id="half timer"),
        pytest.param({"i": "TIMER_DEL_UNIQKEY\x013"}, b"x", 13, "another request", id="recall"),
    ],
)
def test_refusals(client, group, changes, body, code, words) -> None:
    answer = client.call(310, _v2(**changes), body)
    assert answer.code == code
    assert words in answer.remark
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    assert group.appended == []
    assert group.created == []


def test_what_was_said_of_names_is_remembered_of_short_ones_only() -> None:
    before = topic_rules._check_target.cache_info().currsize
    assert topic_rules.check_target("x" * 256) is not None
    assert topic_rules.check_target("x" * 1_000_000) is not None
    assert topic_rules._check_target.cache_info().currsize == before


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_delay_is_no_delay(client, level) -> None:
    assert client.call(310, _v2(i=f"DELAY\x01{level}\x02"), b"x").code == 0


def test_a_larger_number_of_read_queues_counts_too(client, group) -> None:
    group.add_topic(TopicConfig("Wide", read_queue_nums=8, write_queue_nums=2))
    assert client.call(310, _v2(b="Wide", e=7), b"x").code == 0
    assert client.call(310, _v2(b="Wide", e=8), b"x").code == 29


def test_a_topic_without_the_write_bit_is_16(client, group) -> None:
    group.add_topic(TopicConfig("ReadOnly", perm=4))
    assert client.call(310, _v2(b="ReadOnly"), b"x").code == 16


def test_who_may_not_write_refuses_before_anything_else(client, group) -> None:
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "draining")
    answer = client.call(310, _v2(b="a b"), b"x")
    assert (answer.code, answer.remark) == (14, "draining")


def test_a_full_disk_is_14_and_too_few_replicas_are_what_the_group_says(client, group) -> None:
    group.append_error = DiskFullError("No room.")
    assert client.call(310, V2, b"x").code == 14
    group.append_error = None
    group.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert client.call(310, V2, b"x").code == 1


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (8, 8), (64, 8), (1, 1), (0, 1), (-3, 1)])
def test_an_unknown_topic_is_created_with_what_the_default_topic_allows(
    client, group, wanted, queues
) -> None:
    answer = client.call(310, _v2(b="New", d=wanted, e=0), b"x")
    assert answer.code == 0
    (topic,) = group.created
    assert (topic.topic_name, topic.perm) == ("New", 6)
    assert (topic.read_queue_nums, topic.write_queue_nums) == (queues, queues)
    assert _stored(group, answer).topic == "New"


def test_the_first_trace_makes_the_topic_of_traces(client, group) -> None:
    assert client.call(310, _v2(b="RMQ_SYS_TRACE_TOPIC", c="", d=4, e=0), b"x").code == 0
    (topic,) = group.created
    assert (topic.topic_name, topic.perm) == ("RMQ_SYS_TRACE_TOPIC", 6)
    assert (topic.read_queue_nums, topic.write_queue_nums) == (1, 1), "as routes say"


def test_a_topic_made_elsewhere_a_moment_ago_stays_what_it_was_made(client, group) -> None:
    made = TopicConfig(topic_name="Made", read_queue_nums=3, write_queue_nums=3, perm=6)
    group.controllers_know["Made"] = made
    assert client.call(310, _v2(b="Made", d=4, e=0), b"x").code == 0
    assert group.store.topics.lookup("Made") == made


def test_many_sends_to_a_new_topic_create_it_once(client, group) -> None:
    group.holding_topics = True
    asked = [client.ask(310, _v2(b="New", e=0), b"%d" % n)[0] for n in range(5)]
    assert len(group.created) == 1
    assert client.conn.replies == []
    group.release_topics()
    offsets = [int(client.conn.answer_to(one).ext["queueOffset"]) for one in asked]
    assert offsets == [0, 1, 2, 3, 4]


def test_a_topic_the_controller_refuses_is_refused(client, group) -> None:
    group.topic_refusal = Refusal(ResponseCode.SYSTEM_BUSY, "the controllers did not answer")
    answer = client.call(310, _v2(b="New", e=0), b"x")
    assert (answer.code, answer.remark) == (2, "the controllers did not answer")


def test_a_mastership_that_ends_while_the_topic_is_made_stores_nothing(client, group) -> None:
    group.holding_topics = True
    asked, _ = client.ask(310, _v2(b="New", e=0), b"x")
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "not the master")
    group.release_topics()
    assert client.conn.answer_to(asked).code == 14
    assert group.appended == []


RETRY = {"b": "%RETRY%cg", "e": 0, "l": 16, "i": "DELAY\x014\x02RETRY_TOPIC\x01TopicTest\x02"}


def test_a_consumers_own_retry_is_parked(client, group) -> None:
    assert client.call(310, _v2(**RETRY, j=1), b"x").code == 0
    ((record,),) = group.appended
    assert (record.topic, record.queue_id, record.reconsume_times) == (SCHEDULE_TOPIC, 3, 1)
    assert decode_properties(record.properties)["REAL_TOPIC"] == "%RETRY%cg"
    assert [topic.topic_name for topic in group.created] == ["%RETRY%cg"]


@pytest.mark.parametrize(
    ("j", "limit", "is_dead"),
    [
        pytest.param(17, 16, True, id="one too many"),
        pytest.param(16, 16, False, id="the last one"),
        pytest.param(4, 3, True, id="the client's limit"),
        pytest.param(17, None, True, id="the group's limit"),
        pytest.param(99, -1, False, id="no limit"),
    ],
)
def test_the_last_retry_goes_to_the_dead_letters(client, group, j, limit, is_dead) -> None:
    answer = client.call(310, _v2(**{**RETRY, "j": j, "l": limit}), b"x")
    if not is_dead:
        assert group.appended[0][0].topic == SCHEDULE_TOPIC
        return
    assert (answer.code, answer.ext["queueId"]) == (0, "0")
    record = _stored(group, answer)
    assert record.topic == "%DLQ%cg"
    assert record.reconsume_times == j
    properties = decode_properties(record.properties)
    assert properties["DELAY"] == "-1"
    assert properties["RETRY_TOPIC"] == "TopicTest"
    (topic,) = group.created
    assert (topic.topic_name, topic.write_queue_nums) == ("%DLQ%cg", 1)


BATCH = encode_batch(
    [
        BatchMessage(b"one", "UNIQ_KEY\x01K1\x02TAGS\x01TagA", flag=7),
        BatchMessage(b"two", "UNIQ_KEY\x01K2\x02"),
        BatchMessage(b"three"),
    ]
)


@pytest.mark.parametrize("code", [310, 320])
def test_a_batch_is_one_record_per_message_with_its_own_properties(client, group, code) -> None:
    answer = client.call(code, _v2(m=True, i="UNIQ_KEY\x01BATCH\x02"), BATCH)
    assert answer.code == 0
    assert answer.ext["transactionId"] == "BATCH"
    assert len(answer.ext["msgId"].split(",")) == 3
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
    (records,) = group.appended
    assert [record.body for record in records] == [b"one", b"two", b"three"]
    assert [record.flag for record in records] == [7, 0, 0]
    assert [record.queue_offset for record in records] == [0, 1, 2]
    assert [record.properties for record in records] == [
        "UNIQ_KEY\x01K1\x02TAGS\x01TagA",
        "UNIQ_KEY\x01K2\x02",
        "",
    ]


@pytest.mark.parametrize(
    ("changes", "body", "words"),
    [
        pytest.param({}, b"", "empty", id="empty"),
        pytest.param({}, BATCH[:-1], "malformed", id="cut short"),
        pytest.param({"f": 4}, BATCH, "another step", id="prepared"),
        pytest.param({"i": "DELAY\x011\x02"}, BATCH, "delayed", id="delay of the batch"),
        pytest.param(
            {}, encode_batch([BatchMessage(b"x", "DELAY\x011\x02")]), "delayed", id="delay inside"
        ),
        pytest.param({}, encode_batch([BatchMessage(b"")]), "empty", id="empty message"),
    ],
)
def test_batches_that_are_refused_whole(client, group, changes, body, words) -> None:
    answer = client.call(320, _v2(m=True, **changes), body)
    assert answer.code == 13
    assert words in answer.remark
    assert group.appended == []


@pytest.fixture
def small_batches(client, monkeypatch):
    monkeypatch.setattr(client.processor._handlers[320].__self__._sender, "max_batch_messages", 2)
    return client


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(["", "", ""], id="plain"),
        pytest.param(["X\x01TIMER_DELAYED\x02", "", ""], id="to-be-looked-at-one-by-one"),
    ],
)
def test_a_batch_of_too_many_messages_is_refused_in_words(small_batches, group, properties) -> None:
    messages = [BatchMessage(b"x", one) for one in properties]
    answer = small_batches.call(320, _v2(m=True), encode_batch(messages))
    assert (answer.code, group.appended) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert "more than 2 messages" in answer.remark
    assert "max_batch_messages" in answer.remark
    assert small_batches.call(320, _v2(m=True), encode_batch(messages[:2])).code == 0


def test_what_looks_special_and_is_not_is_still_one_run(client, group) -> None:
    """Else a stranger has each message of a batch encoded by itself."""
    taken = []
    client.processor._view.store.append = lambda records, _, once: taken.append(records)
    client.ask(320, _v2(m=True), encode_batch([BatchMessage(b"x", "X\x01TIMER_DELAYED\x02")] * 3))
    assert [type(one) for one in taken] == [RecordRun]
    assert len(taken[0]) == 3


@pytest.mark.parametrize("ends", ["confirm", "give_up", "doubt"])
def test_what_a_large_batch_costs_later_is_owed_until_it_ends(client, group, ends) -> None:
    group.holding = True
    for size in (100, 3):
        client.ask(320, _v2(m=True), encode_batch([BatchMessage(b"x")] * size))
    assert client.conn.turns.owed_s == pytest.approx(0.001), "a small one owes nothing"
    getattr(group, ends)()
    assert client.conn.turns.owed_s == pytest.approx(0.0)


def test_a_retry_topic_takes_no_batches(client, group) -> None:
    group.add_topic(TopicConfig("%RETRY%cg", 1, 1))
    assert client.call(320, _v2(m=True, b="%RETRY%cg", e=0), BATCH).code == 13


def test_compressed_bodies_are_stored_verbatim(client, group) -> None:
    answer = client.call(310, _v2(f=769), b"\x78\x9c...")
    record = _stored(group, answer)
    assert (record.sys_flag, record.body) == (769, b"\x78\x9c...")


def test_unknown_codes_are_3_with_upstreams_words(client) -> None:
    answer = client.call(326, {})
    assert (answer.code, answer.remark) == (3, " request type 326 not supported")
