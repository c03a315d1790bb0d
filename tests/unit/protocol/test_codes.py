"""Codes that must never move."""

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode

REQUESTS = {
    27: "TRIGGER_DELETE_FILES", 306: "CLEAN_EXPIRED_CONSUMEQUEUE", 329: "DELETE_EXPIRED_COMMITLOG",
    10: "SEND_MESSAGE", 11: "PULL_MESSAGE", 34: "HEART_BEAT", 36: "CONSUMER_SEND_MSG_BACK",
    105: "GET_ROUTEINFO_BY_TOPIC", 106: "GET_BROKER_CLUSTER_INFO", 310: "SEND_MESSAGE_V2",
    320: "SEND_BATCH_MESSAGE", 361: "LITE_PULL_MESSAGE", 904: "BROKER_HEARTBEAT",
    1001: "CONTROLLER_ALTER_SYNC_STATE_SET", 1002: "CONTROLLER_ELECT_MASTER",
    1003: "CONTROLLER_REGISTER_BROKER", 1004: "CONTROLLER_GET_REPLICA_INFO",
    1005: "CONTROLLER_GET_METADATA_INFO", 1006: "CONTROLLER_GET_SYNC_STATE_DATA",
    1007: "GET_BROKER_EPOCH_CACHE", 1008: "NOTIFY_BROKER_ROLE_CHANGED",
    1009: "UPDATE_CONTROLLER_CONFIG", 1010: "GET_CONTROLLER_CONFIG", 1011: "CLEAN_BROKER_DATA",
    1012: "CONTROLLER_GET_NEXT_BROKER_ID", 1013: "CONTROLLER_APPLY_BROKER_ID",
}  # fmt: skip


@pytest.mark.parametrize(("number", "name"), REQUESTS.items())
def test_request_codes_are_upstreams(number: int, name: str) -> None:
    assert RequestCode(number).name == name


def test_controller_refusals_run_from_2000_without_a_gap() -> None:
    refusals = [code for code in ResponseCode if 2000 <= code < 2017]
    assert refusals == list(range(2000, 2017))
    assert all(code.name.startswith("CONTROLLER_") for code in refusals)
