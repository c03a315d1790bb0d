"""Requests that no honest broker sends, to every code: a refusal in words, never a defect.

What a handler cannot read is a ``GantryError``, which the server answers with code 1. Anything else
would be logged as a defect of ours, and inside the node's pass it would end the process.
"""

import asyncio

from gantry_controller.metadata.events import decode_event, encode_event
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.controller_dispatcher import CLUSTER, NAME, FakeConnection, Harness

FIELDS = [
    "brokerId",
    "masterBrokerId",
    "masterEpoch",
    "appliedBrokerId",
    "registerCheckCode",
    "brokerAddress",
    "brokerAddr",
    "epoch",
    "maxOffset",
    "confirmOffset",
    "heartbeatTimeoutMills",
    "electionPriority",
    "designateElect",
    "isCleanLivingBroker",
    "brokerControllerIdsToClean",
    "incarnation",
    "podUid",
    "haPort",
    "lastEpoch",
    "topic",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "order",
    "topicSysFlag",
    "tierState",
    "draining",
    "invokeTime",
    "haServerAddr",
    "bodyCrc32",
    "compressed",
    "namespace",
    "key",
    "value",
    "gantryForwarded",
    "gantryWithIndex",
]
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1", "2", "true", "null", "NaN", "1e9", " 1", "٣", "\x00", "1;2", ";"]
    ),
    st.sampled_from([str(2**31 - 1), str(2**31), str(-(2**63)), str(2**63), str(10**400)]),
    st.text(max_size=8),
    st.just("x" * 100_000),
)
HEADERS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=12)
NAMES = st.sampled_from([CLUSTER, NAME, "", "other", "a b", "\x00", "x" * 10_000])
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"{}",
            b"[]",
            b"[1]",
            b'["broker-a", 1]',
            b"[" * 5000,
            b'{"syncStateSet":[1],"syncStateSetEpoch":1}',
            b'{"syncStateSet":[-1,99999999999999999999],"syncStateSetEpoch":-1}',
            b'{"syncStateSet":"1","syncStateSetEpoch":{}}',
            b'{1:"a",2:}',
            b"\xff\xfe",
            b"=\n\\u12",
            b"orderMessageEnable=true\nconfigStorePath=x",
            b'{"queueDatas":[{"brokerName":"b","perm":-1,"readQueueNums":-1,"writeQueueNums":0}]}',
        ]
    ),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), HEADERS, NAMES, NAMES, BODIES), max_size=40))
@example([(number, {}, CLUSTER, NAME, b"") for number in range(60)])
@example(
    [(number, dict.fromkeys(FIELDS, str(10**400)), CLUSTER, NAME, b"") for number in range(60)]
)
@example([(number, dict.fromkeys(FIELDS, str(2**63)), CLUSTER, NAME, b"") for number in range(60)])
def test_absurd_requests_are_refused_in_words(
    asked: list[tuple[int, dict[str, str], str, str, bytes]],
) -> None:
    async def scenario() -> None:
        harness = Harness()
        harness.join(1)
        harness.elect(1)
        codes = sorted(harness.dispatcher.served)
        for number, fields, cluster, name, body in asked:
            ext = {"clusterName": cluster, "brokerName": name, **fields}
            command = RemotingCommand(code=codes[number % len(codes)], ext=ext, body=body)
            connection = FakeConnection(number)
            try:
                answer = harness.dispatcher.handle(connection, command)  # type: ignore[arg-type]
            except GantryError:
                pass  # the server answers code 1 with its words
            else:
                answers = [answer] if answer is not None else connection.replies
                assert len(answers) == 1, (command, answers)
        assert not harness.dispatcher._open
        await harness.close()

    asyncio.run(scenario())


def test_the_state_took_nothing_that_it_cannot_write_again() -> None:
    """What was taken into the log comes out of it unchanged; the fields above went in as text."""

    async def scenario() -> None:
        harness = Harness()
        seen: list[bytes] = []
        propose = harness.quorum.propose

        def note(command: bytes, done: object) -> None:
            seen.append(command)
            propose(command, done)  # type: ignore[arg-type]

        harness.quorum.propose = note  # type: ignore[method-assign]
        harness.join(1)
        harness.register(1, brokerAddress="\x00ümlaut:99999999", incarnation="😀" * 100)
        assert seen
        assert [encode_event(decode_event(one)) for one in seen] == seen
        await harness.close()

    asyncio.run(scenario())
