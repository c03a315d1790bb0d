"""`gantry topics | groups | offsets` against a group in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner, Result
from gantry_cli.client.brokers import REFUSED_TRIES
from gantry_cli.client.routes import Routes
from gantry_cli.client.session import Session
from gantry_cli.commands import groups, offsets, topics
from gantry_cli.main import cli
from gantry_protocol.bodies import (
    BrokerData,
    QueueData,
    SubscriptionGroupConfig,
    TopicRouteData,
    encode_body,
)
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from support.admin_group import AdminGroup
from support.fake_group import NAME_SERVER, nobody_listens, refuse


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> AdminGroup:
    made = AdminGroup()

    @asynccontextmanager
    async def session(_: object) -> AsyncIterator[Session]:
        yield Session(made, Routes([NAME_SERVER], made))  # type: ignore[arg-type]  # a `Caller`

    for module in (groups, offsets, topics):
        monkeypatch.setattr(module, "session", session)
    monkeypatch.setattr("gantry_cli.client.brokers.REFUSED_RETRY_S", 0)
    return made


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, [*args, "--nameserver", NAME_SERVER])


def said(*args: str) -> str:
    """What a command prints; it must succeed."""
    result = run(*args)
    assert result.exit_code == 0, result.exception or result.output
    return result.stdout


def refused(*args: str) -> str:
    """Why a command does not do it."""
    result = run(*args)
    assert result.exit_code != 0
    error = result.exception
    return str(error) if isinstance(error, GantryError) else result.stderr


# ---- topics


def test_a_topic_is_created_once_and_changed_by_update(group: AdminGroup) -> None:
    assert "8 queues" in said("topics", "create", "made", "--queues", "8")
    said("topics", "create", "made", "--queues", "8")
    assert "gantry topics update made --queues 4" in refused("topics", "create", "made")
    assert group.shapes["made"] == (8, 6)
    (now,) = json.loads(said("topics", "update", "made", "--access", "read", "--json"))
    assert (now["queues"], now["perm"], now["broker_group"]) == (8, 4, "orders")
    said("topics", "update", "made", "--queues", "9")
    assert group.shapes["made"] == (9, 4), "what is not named stays"
    assert "read write" in said("topics", "update", "made", "--access", "read-write")


def test_the_type_of_a_topic_and_a_groups_factor_are_attributes(group: AdminGroup) -> None:
    said("topics", "create", "made", "--type", "priority")
    said("topics", "update", "made", "--type", "fifo", "--readers", "2")
    assert group.attributes == [
        "+message.type=PRIORITY",
        "+gantry.readers=2,+message.type=FIFO",
    ]
    assert run("topics", "create", "other", "--type", "loud").exit_code == 2
    assert " 30" in said("groups", "create", "new", "--priority-factor", "30")
    assert " 100" in said("groups", "create", "usual")
    assert run("groups", "update", "new", "--priority-factor", "101").exit_code == 2


def test_the_readers_of_a_topic_are_an_attribute(group: AdminGroup) -> None:
    said("topics", "create", "made", "--readers", "3")
    said("topics", "update", "made", "--readers", "1;1=2")
    said("topics", "update", "made", "--queues", "5")
    assert group.attributes == ["+gantry.readers=3", "+gantry.readers=1;1=2", None]
    result = run("topics", "update", "made", "--readers", "many")
    assert (result.exit_code, "'many' is not 0 to 16" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["update", "t"], "Say what is to change"),
        (["update", "t", "--queues", "1"], "give --yes"),
        (["update", "nope", "--queues", "1"], "no topic 'nope'"),
        (["delete", "t"], "give --yes"),
        (["delete", "nope", "--yes"], "no topic 'nope'"),
    ],
    ids=" ".join,
)
def test_topics_are_not_harmed_by_mistake(group: AdminGroup, args: list[str], words: str) -> None:
    assert words in refused("topics", *args)
    assert group.shapes == {"t": (2, 6)}
    assert group.deleted == []


def test_topics_are_changed_by_brokers_which_show_the_controllers_the_key(
    group: AdminGroup,
) -> None:
    assert "deleted" in said("topics", "delete", "t", "--yes")
    deletions = [at for at, code in group.asked if code == RequestCode.DELETE_TOPIC_IN_BROKER]
    assert deletions == [group.address]
    said("topics", "create", "made")
    creations = [at for at, code in group.asked if code == RequestCode.UPDATE_AND_CREATE_TOPIC]
    assert creations == [group.address]


def test_a_broker_that_does_not_answer_keeps_the_topic(group: AdminGroup) -> None:
    refused_always = [nobody_listens] * REFUSED_TRIES
    group.fail(RequestCode.DELETE_TOPIC_IN_BROKER, *refused_always)
    assert f"orders at {group.address} does not answer" in refused("topics", "delete", "t", "-y")
    assert "t" in group.shapes


def test_an_address_that_not_every_node_knows_yet_is_tried_again(group: AdminGroup) -> None:
    group.fail(RequestCode.UPDATE_AND_CREATE_TOPIC, nobody_listens, nobody_listens)
    said("topics", "create", "made")
    assert "made" in group.shapes


LATE = "late:10911"


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ("topics", "create", "made")),
        (RequestCode.DELETE_TOPIC_IN_BROKER, ("topics", "delete", "t", "--yes")),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, ("groups", "create", "new")),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, ("groups", "delete", "idle", "--yes")),
    ],
)
def test_a_group_that_comes_meanwhile_is_changed_as_well(
    group: AdminGroup,
    monkeypatch: pytest.MonkeyPatch,
    code: RequestCode,
    command: tuple[str, ...],
) -> None:
    """It has taken over what the others had before, and nobody would tell it later."""
    busy(group)
    brokers, delete, route = group.brokers, group._delete_topic, group._admin_route

    def asked() -> list[str]:
        return [address for address, asked in group.asked if asked == code]

    def grown() -> list[BrokerData]:
        return [*brokers(), *([BrokerData({0: LATE}, "late", "gantry")] if asked() else [])]

    def still_there(command: RemotingCommand, ext: dict[str, str]) -> RemotingCommand:
        return delete(command, ext) if LATE in asked() else reply(command)

    def route_of_all(command: RemotingCommand, ext: dict[str, str]) -> RemotingCommand:
        answer = route(command, ext)
        if answer.code:
            return answer
        queues = [QueueData(item.broker_name, 6, 1, 1) for item in grown()]
        return reply(command, body=encode_body(TopicRouteData(grown(), queues, {})))

    monkeypatch.setattr(group, "brokers", grown)
    monkeypatch.setattr(group, "_delete_topic", still_there)
    monkeypatch.setattr(group, "_admin_route", route_of_all)
    said(*command)
    assert asked() == [group.address, LATE]


# ---- groups


def busy(group: AdminGroup) -> None:
    """g has a lag of 6 and a member; idle has offsets only."""
    group.fill("t", 0, 10)
    group.fill("t", 1, 4)
    group.committed = {("g", "t", 0): 7, ("g", "t", 1): 1, ("idle", "t", 0): 10}
    group.members["g"] = ["c1"]


def test_groups_with_members_and_lag(group: AdminGroup) -> None:
    busy(group)
    group.shapes["%RETRY%silent"] = (1, 6)
    group.settings["set"] = SubscriptionGroupConfig("set")
    found = json.loads(said("groups", "list", "--json"))
    assert {one["group"]: (one["members"], one["lag"]) for one in found} == {
        "g": (1, 6),
        "idle": (0, 0),
        "set": (0, 0),
        "silent": (0, 0),
    }
    table = said("groups", "list").splitlines()
    assert table[1].split() == ["g", "1", "clustering", "1", "6"]


@pytest.mark.parametrize(
    "args",
    [("groups", "list"), ("groups", "show", "g"), ("offsets", "show", "g")],
    ids=" ".join,
)
def test_a_group_that_does_not_answer_is_left_out_by_name(
    group: AdminGroup, args: tuple[str, ...]
) -> None:
    busy(group)
    group.ghosts = ("ghost",)
    result = run(*args)
    assert result.exit_code == 0, result.exception
    assert "g" in result.stdout
    assert result.stderr == "Left out: ghost at ghost:10911 does not answer.\n"


def test_where_nobody_answers_nothing_is_shown(group: AdminGroup) -> None:
    group.ghosts = ("ghost",)
    group.address = "ghosts:10911"
    assert "No broker group answers" in refused("groups", "list")


def test_a_change_is_not_made_on_some_of_the_groups_only(group: AdminGroup) -> None:
    busy(group)
    group.ghosts = ("ghost",)
    words = refused("offsets", "reset", "g", "t", "--to", "earliest", "--yes")
    assert "broker group ghost at ghost:10911 does not answer" in words


def test_a_group_in_full(group: AdminGroup) -> None:
    busy(group)
    group.settings["g"] = SubscriptionGroupConfig("g", consume_enable=False)
    text = said("groups", "show", "g")
    for words in ("6 messages behind", "HELD BACK on orders", "c1", "10.0.0.7:5000", "TagA"):
        assert words in text
    found = json.loads(said("groups", "show", "g", "--json"))
    assert [(row["queue"], row["lag"]) for row in found["queues"]] == [(0, 3), (1, 3)]
    assert "no consumer group 'nope'" in refused("groups", "show", "nope")


def test_settings_are_created_and_changed_one_by_one(group: AdminGroup) -> None:
    said("groups", "create", "new", "--retries", "3")
    assert "gantry groups update new" in refused("groups", "create", "new")
    now = json.loads(said("groups", "update", "new", "--no-consume", "--json"))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert {at for at, asked in group.asked if asked == code} == {group.address}
    assert (now["orders"]["retryMaxTimes"], now["orders"]["consumeEnable"]) == (3, False)
    assert group.settings["new"].retry_max_times == 3
    assert "Say what is to change" in refused("groups", "update", "new")
    assert "no consumer group" in refused("groups", "update", "nope", "--consume")


def test_a_group_with_members_is_not_deleted(group: AdminGroup) -> None:
    busy(group)
    assert "stop them first" in refused("groups", "delete", "g", "--yes")
    assert "give --yes" in refused("groups", "delete", "idle")
    assert group.deleted == []


@pytest.mark.parametrize("flags", [[], ["--dead-letters"]], ids=["keep", "all"])
def test_a_deleted_group_takes_its_topics_and_keeps_dead_letters(
    group: AdminGroup, flags: list[str]
) -> None:
    busy(group)
    group.shapes |= {"%RETRY%idle": (1, 6), "%DLQ%idle": (1, 6)}
    said("groups", "delete", "idle", "--yes", *flags)
    (name, ext), *_ = group.deleted
    assert (name, ext["cleanOffset"]) == ("idle", "true")
    assert ("%DLQ%idle" in group.shapes) is not bool(flags)
    assert "%RETRY%idle" not in group.shapes


# ---- offsets


def test_offsets_of_a_group(group: AdminGroup) -> None:
    busy(group)
    rows = json.loads(said("offsets", "show", "g", "--json"))
    assert [(row["queue"], row["next"], row["end"], row["lag"]) for row in rows] == [
        (0, 7, 10, 3),
        (1, 1, 4, 3),
    ]
    assert "6 messages wait." in said("offsets", "show", "g")
    assert "no offsets in other" in said("offsets", "show", "g", "--topic", "other")


@pytest.mark.parametrize(
    ("to", "moves"),
    [
        ("earliest", [(0, 7, 0), (1, 1, 0)]),
        ("latest", [(0, 7, 10), (1, 1, 4)]),
        ("3", [(0, 7, 3), (1, 1, 3)]),
        ("2023-11-14T22:13:20+00:00", [(0, 7, 1), (1, 1, 1)]),
    ],
)
def test_a_dry_run_shows_old_and_new_and_a_reset_does_just_that(
    group: AdminGroup, to: str, moves: list[tuple[int, int, int]]
) -> None:
    busy(group)
    before = dict(group.committed)
    shown = json.loads(said("offsets", "reset", "g", "t", "--to", to, "--dry-run", "--json"))
    assert [(one["queue"], one["before"], one["after"]) for one in shown] == moves
    assert group.committed == before
    group.fill("t", 0, 20)  # messages come in between
    if to != "latest":
        done = json.loads(said("offsets", "reset", "g", "t", "--to", to, "--yes", "--json"))
        assert done == shown
        assert [group.committed["g", "t", queue] for queue, _, _ in moves] == [
            after for _, _, after in moves
        ]


def test_a_dry_run_tells_people_the_effect(group: AdminGroup) -> None:
    busy(group)
    text = said("offsets", "reset", "g", "t", "--to", "3", "--dry-run")
    assert "4 again" in text
    assert "2 skipped" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["g", "t", "--to", "earliest"], "consume 8 messages again and skip 0"),
        (["g", "t", "--to", "earliest", "--json"], "give --yes, or --dry-run"),
        (["nope", "t", "--to", "earliest", "--yes"], "no consumer group 'nope'"),
        (["g", "nope", "--to", "earliest", "--yes"], "no topic 'nope'"),
        (["g", "t", "--to", "yesterday", "--yes"], "neither earliest, latest, an offset"),
        (["g", "t", "--to", "2999-01-01", "--yes"], "has not come yet"),
        (["g", "t", "--to", "5", "--yes"], "not in queue 1 of orders, which has 0 to 4"),
        (["g", "t", "--to", "1", "--queue", "7", "--yes"], "no queue 7"),
        (["g", "t", "--to", "1", "--broker-group", "x", "--yes"], "no broker group 'x'"),
    ],
    ids=" ".join,
)
def test_nonsense_moves_nothing(group: AdminGroup, args: list[str], words: str) -> None:
    busy(group)
    before = dict(group.committed)
    assert words in refused("offsets", "reset", *args)
    assert group.committed == before


def test_a_reset_that_fails_half_way_says_how_far_it_came(group: AdminGroup) -> None:
    busy(group)
    group.fail(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, group_answers, refuse(1, "the disk is full")
    )
    said_why = refused("offsets", "reset", "g", "t", "--to", "2", "--yes")
    assert "Queue 1 was not moved, 1 of 2 were" in said_why
    assert "the disk is full" in said_why


def group_answers(group, command):  # type: ignore[no-untyped-def]  # a `Fault` that is none
    return group._reset(command, command.ext)
