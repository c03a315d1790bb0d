"""The table of requests: complete, as upstream sorts them, and kept to by the dispatcher.

``SPEC`` is written down from ``rocketmq-controller-protocol.md`` §2.1 (codes, and that 904, 1005,
1009 and 1010 are for any node) and rocketmq #7163 (classes); the table must say the same.
"""

import pytest
from gantry_controller.metadata.events import (
    Event,
    ForgetConsumers,
    RaiseFloors,
    RegisterBroker,
    TakeShare,
    TakeTopics,
)
from gantry_controller.remoting.dispatcher import Exchange
from gantry_controller.requests import ADMIN, REMOTING, Answerer, Consistency
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.remoting.reads import served_by_followers
from support.controller_dispatcher import CLUSTER, NAME, Harness

SPEC = {
    904: ("BrokerHeartbeat", "local"),
    1001: ("AlterSyncStateSet", "write"),
    1002: ("ElectMaster", "write"),
    1003: ("RegisterBroker", "write"),
    1004: ("GetReplicaInfo", "consistent read"),
    1005: ("GetMetadataInfo", "local"),
    1006: ("GetSyncStateSet", "unsafe read"),
    1009: ("UpdateControllerConfig", "local"),
    1010: ("GetControllerConfig", "local"),
    1011: ("CleanBrokerData", "write"),
    1012: ("GetNextBrokerId", "consistent read"),
    1013: ("ApplyBrokerId", "write"),
}
NAME_SERVERS = {
    **dict.fromkeys((100, 102, 103, 104, 205, 216, 217, 318, 327), "write"),
    **dict.fromkeys((101, 105, 106, 206, 219, 224, 304, 319, 901), "consistent read"),
    **dict.fromkeys((311, 312, 313, 322, 904), "local"),
}
"""Every code that upstream's name server answers (``DefaultRequestProcessor``)."""

ONLY_IN_UPSTREAMS_LOG = (1014, 1015, 1016, 1017, 1018)
BROKERS_ANSWER = (1007, 1008)


def test_controller_codes_are_the_specs() -> None:
    ours = {code: row for code, row in REMOTING.items() if code == 904 or 1000 <= code < 2000}
    assert {int(code): (row.name, row.consistency.value) for code, row in ours.items()} == SPEC


def test_every_code_of_a_name_server_is_answered() -> None:
    ours = {int(code): row.consistency.value for code, row in REMOTING.items()}
    assert {code: ours.get(code) for code in NAME_SERVERS} == NAME_SERVERS


@pytest.mark.parametrize("code", [*ONLY_IN_UPSTREAMS_LOG, *BROKERS_ANSWER])
async def test_others_are_not_supported(harness: Harness, code: int) -> None:
    answer = harness.call(code)
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


async def test_every_row_has_a_handler(harness: Harness) -> None:
    assert harness.dispatcher.served == frozenset(REMOTING)


@pytest.mark.parametrize("key", [*REMOTING, *ADMIN], ids=str)
def test_a_class_says_who_answers(key: RequestCode | tuple[str, str]) -> None:
    row = REMOTING[key] if isinstance(key, RequestCode) else ADMIN[key]
    assert (row.event is not None) == (row.consistency is Consistency.WRITE)
    if row.consistency in (Consistency.WRITE, Consistency.UNSAFE_READ):
        assert row.answerer is Answerer.LEADER
    if row.answerer is Answerer.ANY_AT_READ_INDEX:
        assert row.consistency is Consistency.CONSISTENT_READ


def test_senders_know_the_reads_that_any_controller_answers() -> None:
    anywhere = {
        code
        for code, row in REMOTING.items()
        if row.answerer is Answerer.ANY_AT_READ_INDEX and not row.named
    }
    assert {code for code in RequestCode if served_by_followers(code)} == anywhere


def test_every_event_comes_from_some_request() -> None:
    written = {row.event for row in [*REMOTING.values(), *ADMIN.values()]} - {None}
    of_the_leader_itself = {RaiseFloors, ForgetConsumers, TakeTopics, TakeShare}
    assert written | of_the_leader_itself == set(Event.__args__)


async def test_another_event_than_the_rows_is_a_bug(harness: Harness) -> None:
    event = RegisterBroker(cluster=CLUSTER, name=NAME, broker_id=1, address="h:1")  # type: ignore[arg-type]

    def wrong(exchange: Exchange) -> None:
        harness.dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code)
        )

    harness.dispatcher.add({RequestCode.CONTROLLER_APPLY_BROKER_ID: wrong})
    with pytest.raises(AssertionError, match="ApplyBrokerId"):
        harness.call(1013)
    assert harness.quorum.index == 0


async def test_an_undeclared_code_is_a_bug(harness: Harness) -> None:
    def wrong(exchange: Exchange) -> RemotingCommand:
        return reply(exchange.request, ResponseCode.TOPIC_NOT_EXIST)

    harness.dispatcher.add({RequestCode.CONTROLLER_GET_METADATA_INFO: wrong})
    with pytest.raises(AssertionError, match="GetMetadataInfo"):
        harness.call(1005)
