"""The admin API's models."""

import pytest
from gantry_protocol.admin import (
    AdvertisedMember,
    ErrorView,
    EvidenceRequest,
    GroupDeclaration,
    GroupView,
    MemberView,
    WatchEvent,
)
from pydantic import ValidationError


def test_json_is_camel_case_both_ways() -> None:
    declaration = GroupDeclaration(uid="u", replicas=3, min_in_sync_replicas=2)
    text = declaration.to_json()
    assert text == '{"uid":"u","replicas":3,"minInSyncReplicas":2,"routeAddress":null}'
    assert GroupDeclaration.model_validate_json(text) == declaration


def test_only_a_declaration_with_listeners_tells_of_them() -> None:
    """Older controllers refuse what they do not know."""
    member = AdvertisedMember(broker_id=1, route="h:1", own="h:2")
    declaration = GroupDeclaration(
        uid="u", replicas=3, min_in_sync_replicas=2, listeners={"outside": [member]}
    )
    text = declaration.to_json()
    assert '"listeners":{"outside":[{"brokerId":1,"route":"h:1","own":"h:2"}]}' in text
    assert GroupDeclaration.model_validate_json(text) == declaration


@pytest.mark.parametrize(
    "text",
    [
        '{"uid":"u","replicas":3,"minInSyncReplicas":2,"minInsyncReplicas":1}',
        '{"uid":"","replicas":3,"minInSyncReplicas":2}',
        '{"uid":"u","replicas":0,"minInSyncReplicas":1}',
        '{"uid":"u","replicas":10,"minInSyncReplicas":1}',
    ],
    ids=["typing error", "no uid", "no replica", "too many"],
)
def test_what_people_send_is_checked(text: str) -> None:
    with pytest.raises(ValidationError):
        GroupDeclaration.model_validate_json(text)


def test_terminating_is_not_gone() -> None:
    with pytest.raises(ValidationError):
        EvidenceRequest.model_validate_json('{"podUid":"p","gone":false}')


def test_views_of_a_newer_controller_can_be_read() -> None:
    member = MemberView(broker_id=1, address="a:1", alive=True, in_sync=True)
    view = GroupView(
        cluster="c", name="g", master_epoch=3, sync_state_set=[1], sync_state_set_epoch=4,
        members=[member],
    )  # fmt: skip
    text = view.to_json().replace('"clean":true', '"clean":true,"invented":{"later":1}')
    assert GroupView.model_validate_json(text) == view


def test_a_watch_heartbeat_needs_only_its_index() -> None:
    event = WatchEvent.model_validate_json('{"index":7,"heartbeat":true}')
    assert (event.index, event.heartbeat, event.cluster) == (7, True, None)


def test_an_error_names_the_leader_and_the_others() -> None:
    assert (
        ErrorView(error="NOT_LEADER", message="m").to_json()
        == '{"error":"NOT_LEADER","message":"m","leader":null,"peers":[]}'
    )
