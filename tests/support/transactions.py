"""What transaction producers say, derived as Java clients derive it, and what a log then holds."""

from __future__ import annotations

from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import MessageRecord, decode_offset_msg_id, decode_records

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
KEY = "7F0000010001000000000000000000AA"
HEARTBEAT = b'{"clientID":"c1","consumerDataSet":[],"producerDataSet":[{"groupName":"PG_T"}]}'


def half(
    key: str = KEY,
    *,
    topic: str = "TopicTest",
    queue_id: int = 2,
    more: str = "",
    **changes: object,
) -> dict[str, object]:
    """The header of 310."""
    transaction = "TRAN_MSG\x01true\x02PGROUP\x01PG_T\x02"
    properties = f"{transaction}UNIQ_KEY\x01{key}\x02TAGS\x01TagA\x02{more}"
    named: dict[str, object] = {
        "a": "PG_T", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 4,
        "g": 1700000000000, "h": 7, "i": properties, "j": 0, "k": False, "m": False,
        "n": "broker-a",
    }  # fmt: skip
    return {**named, **changes}


def claim(sent: RemotingCommand, outcome: int, **changes: object) -> dict[str, object]:
    """The header that ends a transaction, from the answer to its half message."""
    assert sent.ext is not None
    named: dict[str, object] = {
        "bname": "broker-a",
        "commitLogOffset": decode_offset_msg_id(sent.ext["msgId"])[1],
        "commitOrRollback": outcome,
        "fromTransactionCheck": False,
        "msgId": sent.ext["transactionId"],
        "producerGroup": "PG_T",
        "topic": "TopicTest",
        "transactionId": sent.ext["transactionId"],
        "tranStateTableOffset": sent.ext["queueOffset"],
    }
    return {**named, **changes}


def claim_checked(check: RemotingCommand, outcome: int) -> dict[str, object]:
    """The header of 37, from a check (39)."""
    assert check.ext is not None
    copied = ("commitLogOffset", "tranStateTableOffset", "msgId", "transactionId")
    return {
        **{name: check.ext[name] for name in copied},
        "commitOrRollback": outcome,
        "fromTransactionCheck": True,
        "producerGroup": "PG_T",
    }


def read_queue(store: MessageStore, topic: str, queue_id: int = 0) -> list[MessageRecord]:
    """Every confirmed record of a queue."""
    found: list[MessageRecord] = []
    at = store.local_min_offset(topic, queue_id)
    while True:
        result = store.get(topic, queue_id, at + len(found), ReadLimits(32, 1 << 20))
        if result.status is not GetStatus.FOUND:
            return found
        found += decode_records(result.body)
