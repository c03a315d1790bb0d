"""Messages to the controllers, and the views in their answers."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.control import requests
from gantry_broker.control.agent import _proposal_outcome
from gantry_broker.control.requests import Known, Report, Speaker
from gantry_broker.replica import ControllerView
from gantry_broker.replica import effects as fx
from gantry_broker.replica.events import Adopted, Refused, Unknown
from gantry_broker.tier.core.report import TierReport
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.batches import HeartbeatsBody, heartbeat_header, heartbeat_row
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import ConnectionClosed, RequestTimeout, WireError
from gantry_protocol.headers import to_ext
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.types import BrokerId, Epoch, Offset

ME = Speaker("c", "g", "1.2.3.4:10911", 10912, "ff00", "pod-1")
REPORT = Report(Epoch(3), Offset(0), Offset(900), Offset(800), draining=True)
SET = b'{"syncStateSet":[1,2],"syncStateSetEpoch":4}'


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


def test_heartbeat_says_everything_the_controller_needs() -> None:
    header = requests.heartbeat(ME, BrokerId(2), REPORT, timeout_ms=2500)
    command = requests.heartbeat_command(header)
    assert command.code == RequestCode.BROKER_HEARTBEAT
    assert command.is_oneway
    assert command.ext == {
        "clusterName": "c",
        "brokerAddr": "1.2.3.4:10911",
        "brokerName": "g",
        "brokerId": "2",
        "epoch": "3",
        "maxOffset": "900",
        "confirmOffset": "800",
        "heartbeatTimeoutMills": "2500",
        "electionPriority": "2147483647",
        "incarnation": "ff00",
        "draining": "true",
        "podUid": "pod-1",
        "logStart": "0",
    }


TIER = TierReport("stalled", Epoch(3), None, 9_000, "no bucket", 17)


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        (
            TIER,
            {
                "tierState": "stalled",
                "tierEpoch": "3",
                "tierLagMs": "9000",
                "tierReason": "no bucket",
                "tierVersion": "17",
            },
        ),
        (
            TierReport("uploading", Epoch(3), Offset(800), 0, "", 18),
            {
                "tierState": "uploading",
                "tierEpoch": "3",
                "tierCommittedOffset": "800",
                "tierLagMs": "0",
                "tierVersion": "18",
            },
        ),
        (TierReport("standby", None, None, None, "", None), {"tierState": "standby"}),
    ],
    ids=["stalled", "uploading", "standby"],
)
def test_heartbeat_says_what_is_known_of_the_tier(tier: TierReport, said: dict[str, str]) -> None:
    plain = requests.heartbeat(ME, BrokerId(2), REPORT, timeout_ms=2500)
    header = requests.heartbeat(ME, BrokerId(2), REPORT._replace(tier=tier), timeout_ms=2500)
    assert to_ext(header) == to_ext(plain) | said


@pytest.mark.parametrize(
    ("field", "name"), [("disk_stuck", "diskStuck"), ("log_damage", "logDamage")]
)
def test_a_heartbeat_says_what_is_wrong_with_a_disk(field: str, name: str) -> None:
    troubled = REPORT._replace(**{field: "a message"})
    header = requests.heartbeat(ME, BrokerId(2), troubled, timeout_ms=2500)
    plain = requests.heartbeat(ME, BrokerId(2), REPORT, timeout_ms=2500)
    assert to_ext(header) == to_ext(plain) | {name: "a message"}
    body = HeartbeatsBody("c", 2500, [heartbeat_row(header)])
    assert getattr(heartbeat_header(body, body.rows[0]), field) == "a message"


def test_a_heartbeat_says_which_settings_are_in_force() -> None:
    word = SettingsWord("0f", "they do not read")
    header = requests.heartbeat(ME, BrokerId(2), REPORT._replace(settings=word), timeout_ms=2500)
    plain = requests.heartbeat(ME, BrokerId(2), REPORT, timeout_ms=2500)
    said = {"settings": "0f", "settingsRefused": "they do not read"}
    assert to_ext(header) == to_ext(plain) | said
    body = HeartbeatsBody("c", 2500, [heartbeat_row(header)])
    again = heartbeat_header(body, body.rows[0])
    assert (again.settings, again.settings_refused) == ("0f", "they do not read")


def test_a_heartbeat_says_what_is_left_of_a_drained_group() -> None:
    plain = to_ext(requests.heartbeat(ME, BrokerId(2), REPORT, timeout_ms=2500))
    left = DrainReport(False, 40, 3, 2, "40 messages wait")
    for drain, said in (
        (
            left,
            {
                "drainDone": "false",
                "drainUnread": "40",
                "drainParked": "3",
                "drainTransactions": "2",
                "drainWaitsFor": "40 messages wait",
            },
        ),
        (
            DrainReport(done=True),
            {
                "drainDone": "true",
                "drainUnread": "0",
                "drainParked": "0",
                "drainTransactions": "0",
            },
        ),
    ):
        report = REPORT._replace(drain=drain)
        header = requests.heartbeat(ME, BrokerId(2), report, timeout_ms=2500)
        assert to_ext(header) == plain | said


@pytest.mark.parametrize(
    "drain", [None, DrainReport(False, 4, 3, 2, "w")], ids=["no drain", "drain"]
)
@pytest.mark.parametrize("tier", [None, TIER], ids=["no tier", "tier"])
def test_a_row_says_what_a_heartbeat_says(
    tier: TierReport | None, drain: DrainReport | None
) -> None:
    report = REPORT._replace(tier=tier, drain=drain)
    header = requests.heartbeat(ME, BrokerId(2), report, timeout_ms=2500)
    data = requests.heartbeats_body("c", [header], timeout_ms=2500, pod_uid="pod-1")
    body = decode_body(HeartbeatsBody, data)
    assert [heartbeat_header(body, row) for row in body.rows] == [header]


def test_registration_names_start_and_log() -> None:
    command = requests.register(ME, BrokerId(2), "h:1;17", REPORT)
    assert command.ext is not None
    assert {
        "incarnation": "ff00",
        "registerCheckCode": "h:1;17",
        "haPort": "10912",
        "lastEpoch": "3",
        "maxOffset": "900",
    }.items() <= (command.ext.items())


def test_a_proposal_compares_both_epochs() -> None:
    proposal = fx.Propose(
        attempt=1, master_epoch=Epoch(3), sync_state_set=ids(2, 1), sync_state_set_epoch=7
    )
    command = requests.alter(ME, BrokerId(1), proposal)
    assert command.ext is not None
    assert (command.ext["masterEpoch"], command.ext["incarnation"]) == ("3", "ff00")
    assert command.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":7}'


def test_a_hand_over_is_designated_and_compares_the_epoch() -> None:
    command = requests.hand_over(ME, fx.HandOver(target=BrokerId(3), epoch=Epoch(5)))
    assert command.ext is not None
    assert command.ext["designateElect"] == "true"
    assert (command.ext["brokerId"], command.ext["masterEpoch"]) == ("3", "5")
    assert command.ext["incarnation"] == "ff00", "a person would name none"


def answer(ext: dict[str, str], body: bytes = SET, code: int = 0) -> RemotingCommand:
    return RemotingCommand(code=code, flag=1, ext=ext, body=body)


FULL = {
    "masterEpoch": "6",
    "masterBrokerId": "1",
    "masterAddress": "1.1.1.1:10911",
    "masterIncarnation": "aa",
    "masterHaAddress": "1.1.1.1:10912",
    "replicas": "3",
    "minInSyncReplicas": "2",
    "topicsVersion": "9",
    "groupUid": "u",
    "drainingIds": "2;3",
    "fencedIds": "4",
}
VIEW = ControllerView(
    master_epoch=Epoch(6),
    master_id=BrokerId(1),
    master_incarnation="aa",
    master_address="1.1.1.1:10911",
    master_ha_address="1.1.1.1:10912",
    sync_state_set=ids(1, 2),
    sync_state_set_epoch=4,
    min_in_sync=2,
    replicas=3,
    draining=ids(2, 3),
    fenced=ids(4),
)


def test_replica_info_is_a_whole_view() -> None:
    assert requests.read_replica_info(answer(FULL), Known()) == (
        VIEW,
        Known(replicas=3, min_in_sync=2, group_uid="u", topics_version=9),
    )


def test_a_group_without_a_master_is_a_view_too() -> None:
    view, _ = requests.read_replica_info(
        answer({"masterEpoch": "0"}, b'{"syncStateSet":[]}'), Known()
    )
    assert view == ControllerView(master_epoch=Epoch(0))


def test_a_registration_before_the_first_election_gives_no_view() -> None:
    view, known = requests.read_registration(
        answer({"groupUid": "u", "topicsVersion": "2"}, b'{"syncStateSet":[]}'), Known()
    )
    assert view is None
    assert known == Known(group_uid="u", topics_version=2)


def test_an_election_takes_the_set_epoch_from_its_header() -> None:
    group = b'{"brokerAddrs":{},"brokerName":"g","cluster":"c"}'
    body = b'{"brokerMemberGroup":%b,"syncStateSet":[1,3]}' % group
    view, _ = requests.read_election(answer({**FULL, "syncStateSetEpoch": "11"}, body), Known())
    assert view is not None
    assert (view.sync_state_set, view.sync_state_set_epoch) == (ids(1, 3), 11)
    kept = answer({**FULL, "syncStateSetEpoch": "11"}, body, code=2011)
    assert requests.read_election(kept, Known()).view == view
    assert requests.read_election(answer({}, b"", code=2012), Known()).view is None


def test_every_answer_says_who_is_fenced() -> None:
    """Or one would let a member in that another has fenced, at the same epochs."""
    group = b'{"brokerAddrs":{},"brokerName":"g","cluster":"c"}'
    body = b'{"brokerMemberGroup":%b,"syncStateSet":[1,2]}' % group
    asked = answer({**FULL, "syncStateSetEpoch": "4"})
    views = [
        requests.read_replica_info(answer(FULL), Known()).view,
        requests.read_registration(answer(FULL), Known()).view,
        requests.read_election(answer({**FULL, "syncStateSetEpoch": "4"}, body), Known()).view,
        requests.read_notice(asked, Known()).view,
    ]
    assert [view is not None and view.fenced for view in views] == 4 * [ids(4)]


def test_what_an_answer_leaves_out_stays_known() -> None:
    known = Known(replicas=3, min_in_sync=2, group_uid="u", topics_version=5)
    notice = answer({"masterEpoch": "6", "syncStateSetEpoch": "4", "masterBrokerId": "1"})
    view, after = requests.read_notice(notice, known)
    assert after == known
    assert view is not None
    assert view.min_in_sync == 2


def test_an_older_topics_version_does_not_undo_a_newer_one() -> None:
    known = Known(topics_version=12)
    assert requests.read_replica_info(answer(FULL), known).known.topics_version == 12


def test_only_an_answer_about_the_group_says_whether_it_is_drained() -> None:
    known = requests.read_replica_info(answer({**FULL, "drainBeganMs": "77"}), Known()).known
    assert known.drain_began_ms == 77
    assert requests.read_registration(answer(FULL), known).known.drain_began_ms == 77
    assert requests.read_replica_info(answer(FULL), known).known.drain_began_ms is None


def test_only_an_answer_about_the_group_says_which_places_are_preferred() -> None:
    told = requests.read_replica_info(answer({**FULL, "preferredIds": "3;1//2"}), Known())
    places = (ids(3, 1), ids(), ids(2))
    assert told.view is not None
    assert (told.known.preferred, told.view.preferred) == (places, places)
    kept = requests.read_registration(answer(FULL), told.known)
    assert (kept.known.preferred, kept.view and kept.view.preferred) == (places, places)
    assert requests.read_replica_info(answer(FULL), told.known).known.preferred == ()


@pytest.mark.parametrize(
    ("text", "expected"), [(None, ids()), ("", ids()), ("1;2", ids(1, 2)), ("1;x;-3", ids(1))]
)
def test_ids(text: str | None, expected: frozenset[BrokerId]) -> None:
    assert requests.parse_ids(text) == expected


@pytest.mark.parametrize(
    ("ext", "body"),
    [({"masterEpoch": "x"}, SET), ({"masterEpoch": "1"}, b""), ({}, SET)],
    ids=["no number", "no body", "no epoch"],
)
def test_malformed_answers_are_refused(ext: dict[str, str], body: bytes) -> None:
    with pytest.raises(WireError):
        requests.read_replica_info(answer(ext, body), Known())


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (answer({"newSyncStateSetEpoch": "4"}), Adopted(ids(1, 2), 4)),
        (answer({}, b"", ResponseCode.CONTROLLER_BROKER_NOT_ALIVE), Refused("2006")),
        (answer({}, b"", ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH), Refused("2000")),
        (answer({}, b"", ResponseCode.CONTROLLER_INVALID_MASTER), Refused("2002")),
        (answer({}, b"", ResponseCode.CONTROLLER_INVALID_REPLICAS), Refused("2003")),
        # An earlier copy of the same attempt may be why these came.
        (answer({}, b"", ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH), Unknown()),
        (answer({}, b"", ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED), Unknown()),
        # These say nothing about what became of it.
        (answer({}, b"", ResponseCode.CONTROLLER_NOT_LEADER), Unknown()),
        (answer({}, b"", ResponseCode.SYSTEM_BUSY), Unknown()),
        (answer({}, b"", ResponseCode.SYSTEM_ERROR), Unknown()),
        (answer({}, b"no json"), Unknown()),
        (RequestTimeout("late"), Unknown()),
        (ConnectionClosed("gone"), Unknown()),
    ],
)
def test_only_a_clear_refusal_is_taken_for_one(
    outcome: RemotingCommand, expected: Adopted | Refused | Unknown
) -> None:
    assert _proposal_outcome(outcome) == expected
