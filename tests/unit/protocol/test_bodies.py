"""JSON bodies: what Java and others send is read, what we send is what they read."""

import json
import zlib
from typing import Any

import msgspec
import pytest
from gantry_protocol import bodies as b
from gantry_protocol.bodies.javajson import quote_keys
from gantry_protocol.bodies.registration import MAX_INFLATED_BYTES
from gantry_protocol.errors import BodyError
from hypothesis import given
from hypothesis import strategies as st

MQ = b.MessageQueue("broker-a", 0, "TopicTest")
HEARTBEAT = (
    b'{"clientID":"ip@pid#nanos","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
    b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}],'
    b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p"}],'
    b'"withoutSub":false}'
)
SUBSCRIPTION = b.SubscriptionData("T", "TagA", ["TagA"], [2598919], 1700000000000)

READ: dict[str, tuple[type, bytes, Any]] = {
    "sync state set": (
        b.SyncStateSetBody,
        b'{"syncStateSet":[1,2],"syncStateSetEpoch":5}',
        b.SyncStateSetBody([1, 2], 5),
    ),
    "elect, bare keys": (
        b.ElectMasterBody,
        (
            b'{"brokerMemberGroup":{"brokerAddrs":{1:"127.0.0.1:10911"},"brokerName":"ba",'
            b'"cluster":"C"},"syncStateSet":[1]}'
        ),
        b.ElectMasterBody([1], b.BrokerMemberGroup({1: "127.0.0.1:10911"}, "ba", "C")),
    ),
    "elect, 2011": (b.ElectMasterBody, b'{"syncStateSet":[2]}', b.ElectMasterBody([2])),
    "heartbeat 5.x": (
        b.HeartbeatData,
        HEARTBEAT,
        b.HeartbeatData(
            "ip@pid#nanos",
            [b.ProducerData("p")],
            [b.ConsumerData("g", subscription_data_set=[SUBSCRIPTION])],
        ),
    ),
    "heartbeat with nulls": (
        b.HeartbeatData,
        (
            b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g",'
            b'"subscriptionDataSet":[{"topic":"T","tagsSet":null,"codeSet":null}]}]}'
        ),
        b.HeartbeatData(
            "c", [], [b.ConsumerData("g", subscription_data_set=[b.SubscriptionData("T")])]
        ),
    ),
    "heartbeat of a C++ client": (  # enums by ordinal, blanks and a newline of jsoncpp
        b.HeartbeatData,
        (
            b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,'
            b'"groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":["1"],'
            b'"subString":"*","subVersion":"17","tagsSet":["a"],"topic":"T"}]}],'
            b'"producerDataSet":[]}\n'
        ),
        b.HeartbeatData(
            "c",
            consumer_data_set=[
                b.ConsumerData(
                    "g",
                    consume_type="CONSUME_PASSIVELY",
                    message_model="BROADCASTING",
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                    subscription_data_set=[
                        b.SubscriptionData("T", tags_set=["a"], code_set=[1], sub_version=17)
                    ],
                )
            ],
        ),
    ),
    "version as text": (
        b.SubscriptionData,
        b'{"topic":"T","subVersion":"17"}',
        b.SubscriptionData("T", sub_version=17),
    ),
    "cluster info, bare keys": (
        b.ClusterInfo,
        (
            b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"a","cluster":"C",'
            b'"enableActingMaster":false}},"clusterAddrTable":{"C":["a"]}}'
        ),
        b.ClusterInfo({"a": b.BrokerData({0: "h:1", 1: "h:2"}, "a", "C")}, {"C": ["a"]}),
    ),
    "epochs": (
        b.EpochEntryCache,
        (
            b'{"brokerId":0,"brokerName":"n","clusterName":"C","epochList":[{"endOffset":'
            b'9223372036854775807,"epoch":1,"startOffset":0}],"maxOffset":9}'
        ),
        b.EpochEntryCache("C", "n", 0, [b.EpochCacheEntry(1, 0, b.OPEN_END)], 9),
    ),
    "consumer offsets": (
        b.ConsumerOffsets,
        b'{"offsetTable":{"topic@group":{0:5}}}',
        b.ConsumerOffsets({"topic@group": {0: 5}}),
    ),
    "locks": (
        b.LockBatchBody,
        (
            b'{"clientId":"c1","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","queueId":0,'
            b'"topic":"TopicTest"}],"onlyThisBroker":false}'
        ),
        b.LockBatchBody("g", "c1", [MQ]),
    ),
}


@pytest.mark.parametrize(("kind", "data", "body"), READ.values(), ids=READ)
def test_bodies_of_others_are_read(kind: type, data: bytes, body: Any) -> None:
    assert b.decode_body(kind, data) == body
    assert b.decode_body(kind, b.encode_body(body)) == body


WRITTEN = {
    "route": (
        b.TopicRouteData(
            [b.BrokerData({0: "1.2.3.4:10911", 1: "h:1"}, "broker-a", "C")],
            [b.QueueData("broker-a", 6, 4, 4)],
            {},
        ),
        (
            '{"brokerDatas":[{"brokerAddrs":{"0":"1.2.3.4:10911","1":"h:1"},"brokerName":"broker-a",'
            '"cluster":"C"}],"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
            '"writeQueueNums":4,"topicSysFlag":0}],"filterServerTable":{}}'
        ),
    ),
    "empty set": (b.SyncStateSetBody([]), '{"syncStateSet":[],"syncStateSetEpoch":0}'),
    "no master": (
        b.ReplicasInfo(0, 0, [], []),
        '{"masterEpoch":0,"syncStateSetEpoch":0,"inSyncReplicas":[],"notInSyncReplicas":[]}',
    ),
    "locks": (
        b.LockedQueues([MQ]),
        '{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}]}',
    ),
}


@pytest.mark.parametrize(("body", "text"), WRITTEN.values(), ids=WRITTEN)
def test_bodies_are_compact_with_quoted_keys_and_no_nulls(body: Any, text: str) -> None:
    assert b.encode_body(body).decode() == text


def test_default_subscription_group_is_upstreams() -> None:
    upstream = (
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupName":"cg","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        '"whichBrokerWhenConsumeSlowly":1}'
    )
    assert json.loads(b.encode_body(b.SubscriptionGroupConfig("cg"))) == json.loads(upstream)


REFUSED = {
    "empty": (b"", "is empty"),
    "no JSON": (b"nonsense", "is no SyncStateSetBody"),
    "list": (b"[]", "Expected `object`"),
    "missing": (b'{"syncStateSetEpoch":1}', "missing required field `syncStateSet`"),
    "wrong type": (b'{"syncStateSet":["x"]}', "Expected `int`"),
    "nesting": (b"[" * 100_000, "is no SyncStateSetBody"),
    "not UTF-8": (b'{"syncStateSet":"\xff"}', "is no SyncStateSetBody"),
    "large and malformed": (b"{1:" * 500_000, "is no SyncStateSetBody"),
}


@pytest.mark.parametrize(("data", "words"), REFUSED.values(), ids=REFUSED)
def test_other_bodies_are_refused_with_a_reason(data: bytes, words: str) -> None:
    with pytest.raises(BodyError) as refusal:
        b.decode_body(b.SyncStateSetBody, data)
    assert words in str(refusal.value)


@pytest.mark.parametrize("ordinal", [-1, 6])
def test_an_ordinal_that_no_name_has_is_refused(ordinal: int) -> None:
    with pytest.raises(BodyError, match="consumeFromWhere"):
        b.decode_body(b.ConsumerData, b'{"groupName":"g","consumeFromWhere":%d}' % ordinal)


def test_large_bodies_are_not_read_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr("gantry_protocol.bodies.codec.quote_keys", read.append)
    with pytest.raises(BodyError):
        b.decode_body(b.SyncStateSetBody, b"{1:" + bytes(1024 * 1024))
    assert read == []


def test_topic_stats_are_written_as_java_does() -> None:
    table = {MQ: b.TopicOffset(1700000000000, 9, 0)}
    written = b.encode_topic_stats(table)
    assert written.decode() == (
        '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:'
        '{"lastUpdateTimestamp":1700000000000,"maxOffset":9,"minOffset":0}},"topicPutTps":0.0}'
    )
    assert b.decode_queue_table(written, b.TopicOffset) == table


def test_consume_stats_and_reset_offsets_are_read_back() -> None:
    stats = {
        MQ: b.OffsetWrapper(9, 7, 1),
        b.MessageQueue("b", 1, 'a"}{,'): b.OffsetWrapper(1, 2, 3),
    }
    assert b.decode_queue_table(b.encode_consume_stats(stats), b.OffsetWrapper) == stats
    offsets = {MQ: 5}
    assert b.decode_queue_table(b.encode_reset_offsets(offsets), int) == offsets
    assert b.encode_queue_map({}) == b"{}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(value=JSON, indent=st.sampled_from([None, 1]))
def test_standard_json_passes_unchanged(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert quote_keys(text) == text


@given(st.dictionaries(st.integers(), JSON, max_size=5))
def test_bare_number_keys_are_quoted(table: dict[int, Any]) -> None:
    text = "{" + ", ".join(f"{key} : {json.dumps(item)}" for key, item in table.items()) + "}"
    assert json.loads(quote_keys(text.encode())) == {str(key): item for key, item in table.items()}


@given(st.text(st.sampled_from('{}[]",:1 a\\'), max_size=60))
def test_arbitrary_text_never_crashes_the_quoter(text: str) -> None:
    quote_keys(text.encode())


# Registrations, upstream's compressed form.

REGISTRATION = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d6512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae61628"
    "59199a1b20402d0303032310cb86e41764268700d5289800a19942b0a79fbb8f6b7c88a3bb4235481153742c9064"
    "0000532f1b63"
)
TOPIC = b.TopicConfig("TopicTest", 4, 4, 6)


def test_a_compressed_registration_of_a_real_broker() -> None:
    got = b.decode_registration(REGISTRATION, compressed=True)
    wrapper = got.topic_config_serialize_wrapper
    assert wrapper.topic_config_table == {"TopicTest": TOPIC}
    assert wrapper.data_version == b.DataVersion(3, 0, 1700000000000)
    assert got.filter_server_list == []
    inflated = zlib.decompress(REGISTRATION)
    ours = zlib.decompress(b.encode_registration(got))
    assert ours == inflated[: len(ours)]
    assert inflated[len(ours) :] == bytes(4)  # the number of static topics, which 4.x leaves out


def test_an_uncompressed_registration() -> None:
    data = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
        b'"stateVersion":0,"timestamp":1},"mappingDataVersion":{},"topicConfigTable":{"TopicTest":'
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":4}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )
    got = b.decode_registration(data, compressed=False)
    assert got.topic_config_serialize_wrapper.topic_config_table == {"TopicTest": TOPIC}
    assert b.decode_registration(b"", compressed=True) == b.RegisterBrokerBody()


@pytest.mark.parametrize(
    "data",
    [
        b"not zlib",
        zlib.compress(b""),
        zlib.compress(b"\x00\x00\x00\x7f{}"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x05T 4 4"),
        zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x0bT 4 4 6 S {x"),
        zlib.compress(bytes(MAX_INFLATED_BYTES + 1)),
    ],
    ids=["no zlib", "empty", "cut", "negative", "short topic", "bad attributes", "bomb"],
)
def test_malformed_registrations_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        b.decode_registration(data, compressed=True)


def test_every_body_is_frozen() -> None:
    with pytest.raises(AttributeError):
        setattr(b.SyncStateSetBody([1]), "sync_state_set_epoch", 3)  # noqa: B010 - it is frozen
    assert issubclass(b.SyncStateSetBody, msgspec.Struct)
