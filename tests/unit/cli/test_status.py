"""`gantry status` and `gantry forget`: what they say of groups that are not well."""

from __future__ import annotations

from typing import Any, Self

import pytest
from click.testing import CliRunner
from gantry_cli.commands import adopt, elect, forget
from gantry_cli.commands.status import headline, remarks
from gantry_cli.main import cli
from gantry_protocol.admin import GroupView, LossView, MemberView


def group(*alive: int, **facts: Any) -> GroupView:
    """Three members, all in the set; those that are `alive`."""
    members = [
        MemberView(broker_id=n, address=f"h{n}:1", alive=n in alive, in_sync=True)
        for n in (1, 2, 3)
    ]
    defaults: dict[str, Any] = {
        "cluster": "gantry",
        "name": "orders",
        "uid": "u1",
        "replicas": 3,
        "min_in_sync_replicas": 2,
        "master_broker_id": 1,
        "master_epoch": 4,
        "sync_state_set": [1, 2, 3],
        "sync_state_set_epoch": 9,
        "members": members,
    }
    return GroupView(**(defaults | facts))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(group(1, 2, 3), "healthy", id="well"),
        pytest.param(group(), "NOBODY LIVES", id="all-gone"),
        pytest.param(group(2, 3), "MASTER GONE", id="master-gone"),
        pytest.param(group(1, 2), "2 of 3 in sync,", id="one-gone"),
        pytest.param(group(1), "1 of 3 in sync, NOTHING IS ACKNOWLEDGED", id="two-gone"),
        pytest.param(group(1, 2, 3, master_broker_id=None), "NO MASTER", id="no-master"),
        pytest.param(group(retired=True), "RETIRED", id="retired"),
    ],
)
def test_only_who_lives_counts(seen: GroupView, words: str) -> None:
    assert headline(seen).startswith(f"Group orders of cluster gantry: {words}")


def test_the_way_back_of_a_retired_group_is_told() -> None:
    assert headline(group(retired=True)).endswith(
        "its BrokerGroup was deleted; create it again, or: gantry forget orders"
    )
    assert headline(group(retired=True, name="orders_3")).endswith(
        "its BrokerGroup orders was deleted or has fewer shards; create it again or raise "
        "spec.shards, or: gantry forget orders_3"
    )


def test_a_disk_without_room_is_told_with_what_is_in_the_way() -> None:
    seen = group(1, 2, 3)
    seen.members[1] = seen.members[1].model_copy(update={"disk_stuck": "a delayed message …"})
    assert remarks(seen) == ["Broker 2 has no room: a delayed message …"]


def test_damage_that_nobody_repaired_is_told() -> None:
    seen = group(1, 2, 3)
    seen.members[1] = seen.members[1].model_copy(update={"log_damage": "1 damaged range …"})
    assert remarks(seen) == ["The log of broker 2 is damaged: 1 damaged range …"]


class FakeAdmin:
    """Knows the groups that a test names, and notes what it is to forget."""

    groups_known: list[GroupView]
    asked: list[tuple[str, str, int | None]]

    def __init__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def groups(self) -> list[GroupView]:
        return self.groups_known

    async def forget(self, found: GroupView, broker_id: int | None = None) -> None:
        self.asked.append((found.cluster, found.name, broker_id))

    async def accept_loss(self, found: GroupView, broker_id: int) -> None:
        self.asked.append((found.cluster, found.name, broker_id))

    async def adopt(self, found: GroupView, ids: list[int], *, accept_missing: bool) -> None:
        self.asked.append((found.cluster, f"{found.name} {ids} {accept_missing}", None))


@pytest.mark.parametrize(
    ("args", "known", "asked"),
    [
        pytest.param(["--member", "3"], [group(1, 2)], ("gantry", "orders", 3), id="member"),
        pytest.param(["--yes"], [group(retired=True)], ("gantry", "orders", None), id="retired"),
        pytest.param(["--yes"], [group()], "is not retired", id="not-retired"),
        pytest.param([], [group(retired=True)], "--yes", id="asks-first"),
        pytest.param(["--member", "7"], [group(1)], "has no member 7", id="no-such-member"),
        pytest.param(["--member", "3"], [], "know no group orders", id="no-such-group"),
        pytest.param(
            ["--member", "3"], [group(), group(cluster="b")], "give --cluster", id="two-clusters"
        ),
        pytest.param(
            ["--member", "3", "--cluster", "b"],
            [group(), group(cluster="b")],
            ("b", "orders", 3),
            id="one-of-two-clusters",
        ),
    ],
)
def test_forget(
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    known: list[GroupView],
    asked: tuple[str, str, int | None] | str,
    tmp_path: Any,
) -> None:
    FakeAdmin.groups_known, FakeAdmin.asked = known, []
    monkeypatch.setattr(forget, "AdminClient", FakeAdmin)
    token = tmp_path / "token"
    token.write_text("t")
    place = ["--controllers", "h:1", "--admin-token-file", str(token)]
    done = CliRunner().invoke(cli, ["forget", "orders", *args, *place])
    if isinstance(asked, str):
        assert done.exit_code != 0
        assert asked in f"{done.exception} {done.output}"
        assert not FakeAdmin.asked
    else:
        assert done.exit_code == 0, done.exception
        assert FakeAdmin.asked == [asked]


def invoke(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, command: Any, known: GroupView, *args: str
) -> Any:
    FakeAdmin.groups_known, FakeAdmin.asked = [known], []
    monkeypatch.setattr(command, "AdminClient", FakeAdmin)
    token = tmp_path / "token"
    token.write_text("t")
    place = ["--controllers", "h:1", "--admin-token-file", str(token)]
    name = command.__name__.rpartition(".")[2]
    return CliRunner().invoke(cli, [name, "orders", *args, *place])


def held_back(*ends: int, **facts: Any) -> GroupView:
    """Members from 1 on that live with logs up to these ends; 100 of epoch 4 is confirmed."""
    members = [
        MemberView(
            broker_id=n, address="h:1", alive=end >= 0, in_sync=True, epoch=4, max_offset=end
        )
        for n, end in enumerate(ends, start=1)
    ]
    known = {"confirmed_epoch": 4, "confirmed_offset": 100, "no_master_reason": "too short"}
    return group(members=members, **(known | facts))


def test_elect_shows_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    done = invoke(monkeypatch, tmp_path, elect, held_back(-1, 60, 70))
    assert done.exit_code == 0, done.exception
    assert "up to 100 of epoch 4" in done.output
    assert "40 bytes" in done.output
    assert "--accept-loss" in done.output
    assert not FakeAdmin.asked


def test_elect_asks_before_a_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    done = invoke(monkeypatch, tmp_path, elect, held_back(-1, 60, 70), "--accept-loss")
    assert "30 bytes of the confirmed log will be lost" in f"{done.exception} {done.output}"
    assert not FakeAdmin.asked
    done = invoke(monkeypatch, tmp_path, elect, held_back(-1, 60, 70), "--accept-loss", "--yes")
    assert done.exit_code == 0, done.exception
    assert FakeAdmin.asked == [("gantry", "orders", 3)]


def test_elect_needs_somebody_who_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    done = invoke(monkeypatch, tmp_path, elect, held_back(-1, -1), "--accept-loss", "--yes")
    assert "No member" in str(done.exception)


def claimed(*epochs: int) -> GroupView:
    """Copies from 1 on that this quorum refuses."""
    members = [
        MemberView(broker_id=n, address="h", alive=False, in_sync=False, epoch=epoch, refused=True)
        for n, epoch in enumerate(epochs, start=1)
    ]
    return group(members=members, master_broker_id=None, master_epoch=0)


@pytest.mark.parametrize(
    ("copies", "args", "asked"),
    [
        ((7, 7, 6), ["--yes"], "orders [1, 2, 3] False"),
        ((7, 7, 6), [], "from epoch 7 on"),
        ((7, 7), ["--yes"], "2 of 3 copies"),
        ((7, 7), ["--yes", "--accept-missing"], "orders [1, 2] True"),
        ((), ["--yes"], "No copy of group orders is refused"),
    ],
)
def test_adopt(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    copies: tuple[int, ...],
    args: list[str],
    asked: str,
) -> None:
    done = invoke(monkeypatch, tmp_path, adopt, claimed(*copies), *args)
    if asked.startswith("orders"):
        assert done.exit_code == 0, done.exception
        assert FakeAdmin.asked == [("gantry", asked, None)]
    else:
        assert asked in f"{done.exception} {done.output}"
        assert not FakeAdmin.asked


def test_status_says_what_a_person_should_know() -> None:
    assert remarks(group(1, 2, 3)) == []
    (waits,) = remarks(held_back(60))
    assert waits == "Nobody is elected: too short; see gantry elect orders"
    (refused,) = remarks(claimed(7))
    assert "gantry adopt orders" in refused
    loss = LossView(master_epoch=5, broker_id=3, epoch=4, end=70, confirmed_offset=100, at_ms=0)
    (lost,) = remarks(group(1, 2, 3, loss=loss))
    assert lost.startswith("A loss was accepted at 1970-01-01 00:00:00+00:00 (epoch 5): broker 3")
