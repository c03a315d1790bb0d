"""The admin API over HTTP on loopback, on a quorum of one voice."""

import asyncio
import io
import json
from typing import Any
from urllib.parse import quote

import pytest
from gantry_controller.admin import api, pages
from gantry_controller.liveness.core.table import Heartbeat
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.events import (
    ApplyBrokerId,
    DeclareGroup,
    ElectMaster,
    LiveMember,
    RegisterBroker,
)
from gantry_protocol.types import BrokerId
from support.admin_api import GROUP, LEADER, WISH, Api
from support.controller_dispatcher import CLUSTER, NAME, address
from support.patience import PATIENCE_S
from support.turns import Turns

FRONTS = f"/v1/clusters/{CLUSTER}/fronts"
PORTS = {"address": "10.96.0.9", "firstPort": 10950, "ports": 4}


class DeafReader:
    """A response whose reader takes nothing, so that a write waits."""

    async def write(self, _data: bytes) -> None:
        await asyncio.Event().wait()


class TestGroups:
    async def test_declaration_is_idempotent_and_logged_once(self, admin: Api) -> None:
        status, view = await admin.call("PUT", GROUP, WISH)
        assert status == 200
        assert view.items() >= {**WISH, "masterEpoch": 0, "masterBrokerId": None}.items()
        index = admin.harness.quorum.index
        assert (await admin.call("PUT", GROUP, WISH))[0] == 200
        assert admin.harness.quorum.index == index
        assert (await admin.call("PUT", GROUP, {**WISH, "replicas": 5}))[1]["replicas"] == 5

    async def test_listeners_are_part_of_the_wish(self, admin: Api) -> None:
        members = [{"brokerId": 1, "route": "172.18.0.2:30911", "own": "172.18.0.2:31001"}]
        wish = {**WISH, "listeners": {"outside": members}}
        assert (await admin.call("PUT", GROUP, wish))[1]["listeners"] == wish["listeners"]
        index = admin.harness.quorum.index
        await admin.call("PUT", GROUP, wish)
        assert admin.harness.quorum.index == index
        wrong = [{**members[0], "own": "no-port"}]
        status, refusal = await admin.call("PUT", GROUP, {**WISH, "listeners": {"outside": wrong}})
        assert (status, refusal["error"]) == (409, "INVALID_REQUEST")
        assert "Listener outside, broker 1" in refusal["message"]
        assert (await admin.call("PUT", GROUP, WISH))[1]["listeners"] == {}

    async def test_listeners_wait_for_the_last_controller(self, admin: Api) -> None:
        """One of an older version would stop at an event with a field that it does not know."""
        admin.harness.watchman.may_raise = lambda: False
        assert (await admin.call("PUT", GROUP, WISH))[0] == 200
        status, refusal = await admin.call("PUT", GROUP, {**WISH, "listeners": {"outside": []}})
        assert (status, refusal["error"]) == (409, "INVALID_REQUEST")
        assert "Not all controllers are of this version" in refusal["message"]

    async def test_preferred_places_are_part_of_the_wish(self, admin: Api) -> None:
        places = [{"zone": "b", "brokerIds": [1, 3]}, {"zone": "a", "brokerIds": []}]
        assert (await admin.call("PUT", GROUP, WISH))[1]["preferred"] == []
        wish = {**WISH, "preferred": places}
        assert (await admin.call("PUT", GROUP, wish))[1]["preferred"] == places
        index = admin.harness.quorum.index
        await admin.call("PUT", GROUP, wish)
        assert admin.harness.quorum.index == index
        twice = [places[0], places[0]]
        status, refusal = await admin.call("PUT", GROUP, {**WISH, "preferred": twice})
        assert (status, refusal["error"]) == (409, "INVALID_REQUEST")
        assert "A zone is preferred twice" in refusal["message"]

    async def test_preferred_places_wait_for_the_last_controller(self, admin: Api) -> None:
        """The view says so, too: who asks first declares everything else meanwhile."""
        admin.harness.watchman.may_raise = lambda: False
        assert (await admin.call("PUT", GROUP, WISH))[1]["preferred"] is None
        places = [{"zone": "b", "brokerIds": [1]}]
        status, refusal = await admin.call("PUT", GROUP, {**WISH, "preferred": places})
        assert (status, refusal["error"]) == (409, "INVALID_REQUEST")
        assert "Not all controllers are of this version" in refusal["message"]
        admin.harness.watchman.may_raise = lambda: True
        await admin.call("PUT", GROUP, {**WISH, "preferred": places})
        admin.harness.watchman.may_raise = lambda: None
        assert (await admin.call("GET", GROUP))[1]["preferred"] == places, "what is there is told"

    async def test_view_shows_record_and_hearsay(self, admin: Api) -> None:
        await admin.three_in_sync()
        admin.harness.heartbeat(
            2,
            incarnation="i2",
            draining="true",
            maxOffset="77",
            confirmOffset="70",
            tierState="stalled",
            tierEpoch="1",
            tierLagMs="900",
            tierReason="no bucket",
        )
        status, view = await admin.call("GET", GROUP)
        assert status == 200
        assert (view["masterBrokerId"], view["masterAddress"]) == (1, address(1))
        assert (view["masterEpoch"], view["syncStateSet"]) == (1, [1, 2, 3])
        assert view["clean"] is True
        second = view["members"][1]
        assert second.pop("lastHeartbeatAgeMs") >= 0
        assert second == {
            "brokerId": 2,
            "address": address(2),
            "haAddress": None,
            "podUid": "p2",
            "podName": None,
            "incarnation": "i2",
            "alive": True,
            "draining": True,
            "epoch": 1,
            "maxOffset": 77,
            "confirmOffset": 70,
            "logStart": -1,
            "diskStuck": "",
            "logDamage": "",
            "settings": "",
            "settingsRefused": "",
            "inSync": True,
            "tier": {
                "state": "stalled",
                "epoch": 1,
                "committedOffset": None,
                "lagMs": 900,
                "reason": "no bucket",
                "version": None,
            },
            "refused": False,
            "drain": None,
            "fenced": False,
        }
        assert view["members"][0]["tier"] is None

    async def test_the_masters_own_word_on_its_first_record_counts_in_its_epoch_only(
        self, admin: Api
    ) -> None:
        await admin.three_in_sync()
        told = {"incarnation": "i1", "lastWriteMs": "500", "firstWriteMs": "700"}
        admin.harness.heartbeat(1, epoch="0", **told)
        _, view = await admin.call("GET", GROUP)
        assert "firstWriteMs" not in (view["mastership"] or {}) or (
            view["mastership"]["firstWriteMs"] is None
        )
        admin.harness.heartbeat(1, epoch="1", **told)
        admin.harness.heartbeat(2, epoch="1", incarnation="i2", firstWriteMs="900")
        _, view = await admin.call("GET", GROUP)
        assert view["mastership"]["epoch"] == 1
        assert (view["mastership"]["lastWriteMs"], view["mastership"]["firstWriteMs"]) == (500, 700)

    async def test_list(self, admin: Api) -> None:
        nothing = {"index": 0, "groups": [], "continue": None}
        assert await admin.call("GET", "/v1/groups") == (200, nothing)
        await admin.call("PUT", GROUP, WISH)
        _, body = await admin.call("GET", "/v1/groups")
        assert (body["index"], body["continue"]) == (1, None)
        assert [group["name"] for group in body["groups"]] == [NAME]

    async def test_pages_show_each_group_once_while_others_come_and_go(self, admin: Api) -> None:
        """Nothing is held for whoever pages: a page begins behind a key, not at a place."""
        path = "/v1/groups/{}/{}"
        for cluster, name in [("b", "1"), ("a", "3"), ("a", "1"), ("b", "2")]:
            await admin.call("PUT", path.format(cluster, name), WISH)
        seen: list[tuple[str, str]] = []
        token = ""
        for _ in range(9):
            _, body = await admin.call("GET", f"/v1/groups?limit=1{token}")
            seen += [(one["cluster"], one["name"]) for one in body["groups"]]
            if body["continue"] is None:
                break
            token = "&continue=" + quote(body["continue"])
            await admin.call("PUT", path.format("a", "0"), WISH)  # behind the reader
            await admin.call("DELETE", path.format("a", "1") + "?uid=u1")  # has been shown
        assert seen == [("a", "1"), ("a", "3"), ("b", "1"), ("b", "2")]

    async def test_a_page_of_tombstones_is_empty_and_not_the_last(self, admin: Api) -> None:
        for name in ("a", "b"):
            await admin.call("PUT", f"/v1/groups/{CLUSTER}/{name}", WISH)
        await admin.call("DELETE", f"/v1/groups/{CLUSTER}/a?uid=u1")
        _, first = await admin.call("GET", "/v1/groups?limit=1")
        assert first["groups"] == []
        _, second = await admin.call("GET", "/v1/groups?limit=1&continue=" + first["continue"])
        assert [one["name"] for one in second["groups"]] == ["b"]
        assert second["continue"] is None

    @pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "continue=x", "continue="])
    async def test_a_place_that_is_none_is_refused(self, admin: Api, query: str) -> None:
        status, error = await admin.call("GET", "/v1/groups?" + query)
        assert (status, error["error"]) == (400, "INVALID_REQUEST")

    async def test_no_limit_lifts_the_bound_of_a_page(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "LIMIT_MAX", 2)
        for name in "abc":
            await admin.call("PUT", f"/v1/groups/{CLUSTER}/{name}", WISH)
        for query in ("", "?limit=99999999999999999999"):
            _, body = await admin.call("GET", "/v1/groups" + query)
            assert len(body["groups"]) == 2
            assert body["continue"]

    async def test_many_lists_at_once_do_one_bit_of_work_in_a_turn_of_the_loop(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A read-only question must not stop the loop: a leader that is silent is deposed."""
        for number in range(4):
            await admin.call("PUT", f"/v1/groups/{CLUSTER}/g{number}", WISH)
        monkeypatch.setattr(api, "GROUPS_PER_TURN", 2)
        turns = Turns()
        monkeypatch.setattr(api, "group_view", turns.noting(api.group_view))
        asked = [admin.call("GET", "/v1/groups") for _ in range(8)]
        answers = await asyncio.gather(*asked)
        turns.stop()
        assert [len(body["groups"]) for _, body in answers] == [4] * 8
        assert max(turns.calls.values()) <= 2

    async def test_a_quorum_that_keeps_silent_is_waited_for_in_vain_only_so_long(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api, "ANSWER_WITHIN_S", 0.01)
        admin.harness.quorum.holding = True
        for method, path, body in (("GET", GROUP, None), ("PUT", GROUP, WISH)):
            async with asyncio.timeout(PATIENCE_S):
                status, error = await admin.call(method, path, body)
            assert (status, error["error"]) == (503, "NO_QUORUM")
        assert admin.api.expired == 2

    async def test_a_watcher_that_takes_nothing_is_dropped(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api, "WRITE_WITHIN_S", 0.01)
        await admin.call("PUT", GROUP, WISH)
        async with asyncio.timeout(PATIENCE_S):
            await admin.api._stream(admin.hub.open(0), DeafReader())  # type: ignore[arg-type]
        assert admin.hub.dropped == 1

    async def test_too_many_lists_at_once_are_refused(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api, "WAITING_MAX", 0)
        status, error = await admin.call("GET", "/v1/groups")
        assert (status, error["error"]) == (429, "OVERLOADED")
        monkeypatch.setattr(api, "WAITING_MAX", 1)
        for _ in range(3):
            assert (await admin.call("GET", "/v1/groups"))[0] == 200, "one after the other"

    async def test_removal(self, admin: Api) -> None:
        await admin.call("PUT", GROUP, WISH)
        admin.harness.watchman.may_raise = lambda: None  # most controllers were not heard of
        status, error = await admin.call("DELETE", GROUP + "?uid=other")
        assert (status, error["error"]) == (503, "NOT_READY")
        admin.harness.watchman.may_raise = lambda: True
        status, error = await admin.call("DELETE", GROUP + "?uid=other")
        assert (status, error["error"]) == (409, "INVALID_REQUEST")
        assert (await admin.call("DELETE", GROUP))[0] == 400
        assert (await admin.call("DELETE", GROUP + "?uid=u1"))[0] == 204
        assert (await admin.call("DELETE", GROUP + "?uid=u1"))[0] == 204
        assert (await admin.call("GET", GROUP))[0] == 404
        status, error = await admin.call("PUT", GROUP, WISH)
        assert (status, error["error"]) == (409, "INVALID_REQUEST")

    async def test_retirement_and_return(self, admin: Api) -> None:
        await admin.three_in_sync()
        status, error = await admin.call("POST", GROUP + "/retire", {"uid": "other"})
        assert (status, error["error"]) == (409, "INVALID_REQUEST")
        for _ in range(2):
            status, view = await admin.call("POST", GROUP + "/retire", {"uid": "u1"})
            assert (status, view["retired"]) == (200, True)
        assert (await admin.call("GET", GROUP))[1]["retired"]
        status, view = await admin.call("PUT", GROUP, WISH)
        assert (status, view["retired"], view["syncStateSet"]) == (200, False, [1, 2, 3])

    async def test_only_who_is_proved_to_be_gone_is_forgotten(self, admin: Api) -> None:
        await admin.three_in_sync()
        admin.harness.alter(1, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}')
        third = {"brokerId": 3, "incarnation": "i3"}
        status, error = await admin.call("POST", GROUP + "/forget", third)
        assert (status, error["error"]) == (409, "INVALID_CLEAN_BROKER_METADATA")
        await admin.call("POST", GROUP + "/evidence", {"podUid": "p3", "gone": True})
        status, view = await admin.call("POST", GROUP + "/forget", third)
        assert (status, [one["brokerId"] for one in view["members"]]) == (200, [1, 2])
        assert (await admin.call("POST", GROUP + "/forget", third))[0] == 200

    async def test_a_member_is_fenced_and_let_in_again(self, admin: Api) -> None:
        await admin.three_in_sync()
        wish = {"brokerId": 3, "fenced": True}
        for _ in range(2):
            status, view = await admin.call("PUT", GROUP + "/fence", wish)
            assert (status, view["syncStateSet"]) == (200, [1, 2])
            assert [one["fenced"] for one in view["members"]] == [False, False, True]
        status, view = await admin.call("PUT", GROUP + "/fence", {"brokerId": 3, "fenced": False})
        assert (status, [one["fenced"] for one in view["members"]]) == (200, 3 * [False])

    async def test_the_master_is_not_fenced_nor_who_is_needed(self, admin: Api) -> None:
        await admin.three_in_sync()
        for broker_id, why in ((1, "is the master"), (9, "has no member 9")):
            wish = {"brokerId": broker_id, "fenced": True}
            status, error = await admin.call("PUT", GROUP + "/fence", wish)
            assert (status, why in error["message"]) == (409, True)
        status, _ = await admin.call("PUT", GROUP + "/fence", {"brokerId": 3, "fenced": True})
        assert status == 200
        status, error = await admin.call("PUT", GROUP + "/fence", {"brokerId": 2, "fenced": True})
        assert (status, "2 are needed" in error["message"]) == (409, True)

    async def test_controllers_of_an_older_version_would_stop_at_a_fence(self, admin: Api) -> None:
        await admin.three_in_sync()
        admin.harness.watchman.may_raise = lambda: None  # type: ignore[method-assign]
        status, error = await admin.call("PUT", GROUP + "/fence", {"brokerId": 3, "fenced": True})
        assert (status, "roll-out" in error["message"]) == (409, True)

    async def test_a_leader_that_has_heard_nobody_forgets_nobody(self, admin: Api) -> None:
        """Silence counts from when it began to listen; the member may well be alive."""
        await admin.three_in_sync()
        admin.harness.alter(1, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}')
        admin.harness.watchman.table.keep_only((CLUSTER, NAME), ())
        view = (await admin.call("GET", GROUP))[1]
        assert [one["alive"] for one in view["members"]] == [False, False, False]
        third = {"brokerId": 3, "incarnation": "i3"}
        assert (await admin.call("POST", GROUP + "/forget", third))[0] == 409

    async def test_nobody_is_forgotten_before_somebody_in_the_set_was_heard(
        self, admin: Api
    ) -> None:
        """That nothing speaks against them yet is no proof that they hold their copies."""
        await admin.three_in_sync()
        admin.harness.alter(1, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}')
        admin.harness.watchman.table.keep_only((CLUSTER, NAME), ())
        await admin.call("POST", GROUP + "/evidence", {"podUid": "p3", "gone": True})
        third = {"brokerId": 3, "incarnation": "i3"}
        status, error = await admin.call("POST", GROUP + "/forget", third)
        assert (status, "only copy" in error["message"]) == (409, True)
        admin.harness.heartbeat(2, incarnation="i2")
        assert (await admin.call("POST", GROUP + "/forget", third))[0] == 200

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"{", id="no JSON"),
            pytest.param({**WISH, "replica": 3}, id="typing error"),
            pytest.param({**WISH, "replicas": 0}, id="out of range"),
            pytest.param({"uid": "u"}, id="missing"),
        ],
    )
    async def test_bad_declaration(self, admin: Api, body: object) -> None:
        status, error = await admin.call("PUT", GROUP, body)
        assert (status, error["error"]) == (400, "INVALID_REQUEST")
        assert admin.harness.quorum.index == 0

    async def test_bad_name(self, admin: Api) -> None:
        assert (await admin.call("PUT", "/v1/groups/c/a%20b", WISH))[0] == 400

    async def test_body_beyond_the_bound(self, admin: Api) -> None:
        async with admin.session.put(GROUP, data=io.BytesIO(b"x" * 2_000_000)) as response:
            assert response.status == 413


class TestElection:
    async def test_by_name_under_compare_and_set(self, admin: Api) -> None:
        await admin.three_in_sync()
        wish = {"brokerId": 3, "masterEpoch": 1}
        status, view = await admin.call("POST", GROUP + "/elect", wish)
        assert (status, view["masterBrokerId"], view["masterEpoch"]) == (200, 3, 2)
        status, error = await admin.call("POST", GROUP + "/elect", wish)
        assert (status, error["error"]) == (409, "FENCED_MASTER_EPOCH")
        again = {"brokerId": 3, "masterEpoch": 2}
        assert (await admin.call("POST", GROUP + "/elect", again))[0] == 200
        nobody = {"brokerId": 9, "masterEpoch": 2}
        status, error = await admin.call("POST", GROUP + "/elect", nobody)
        assert (status, error["error"]) == (409, "ELECT_MASTER_FAILED")

    async def test_not_while_something_speaks_against_it(
        self, admin: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await admin.three_in_sync()
        monkeypatch.setattr(Watchman, "before_election", lambda *_: "not before that is known")
        wish = {"brokerId": 3, "masterEpoch": 1}
        status, error = await admin.call("POST", GROUP + "/elect", wish)
        assert (status, error["error"]) == (409, "ELECT_MASTER_FAILED")
        assert error["message"] == "not before that is known"
        assert (await admin.call("GET", GROUP))[1]["masterEpoch"] == 1

    async def test_a_process_that_does_not_name_itself_has_no_name(self, admin: Api) -> None:
        await admin.call("PUT", GROUP, WISH)
        admin.harness.join(1)
        admin.harness.join(2, incarnation="i2")
        view = (await admin.call("GET", GROUP))[1]
        assert [one["incarnation"] for one in view["members"]] == [None, "i2"]

    async def test_evidence_is_noted(self, admin: Api) -> None:
        await admin.three_in_sync()
        evidence = {"podUid": "p1", "gone": True}
        status, view = await admin.call("POST", GROUP + "/evidence", evidence)
        assert status == 200
        assert [one["alive"] for one in view["members"]] == [False, True, True]
        assert (await admin.call("POST", GROUP + "/evidence", {"podUid": "p", "gone": False}))[
            0
        ] == 400
        unknown = await admin.call("POST", f"/v1/groups/{CLUSTER}/x/evidence", evidence)
        assert unknown[0] == 404


class TestWithoutAWayBack:
    """Nobody is left who holds what was confirmed, or this quorum knows nothing of the group."""

    async def only_an_older_copy(self, admin: Api) -> Any:
        """Broker 3 comes back with less than 1000; what the group looks like then."""
        await admin.three_in_sync()
        harness = admin.harness
        said = {"incarnation": "i1", "maxOffset": "1000", "confirmOffset": "1000"}
        harness.heartbeat(1, confirmEpoch="1", **said)
        for broker_id in (1, 2, 3):
            harness.die(broker_id)
        harness.register(3, incarnation="j3", lastEpoch="1", maxOffset="400")
        assert harness.elect(3, incarnation="j3").code != 0
        return (await admin.call("GET", GROUP))[1]

    async def test_a_loss_is_accepted_as_it_was_seen(self, admin: Api) -> None:
        seen = await self.only_an_older_copy(admin)
        assert (seen["confirmedEpoch"], seen["confirmedOffset"]) == (1, 1000)
        wish = {"brokerId": 3, "masterEpoch": 1, "confirmedOffset": 999}
        status, error = await admin.call("POST", GROUP + "/accept-loss", wish)
        assert (status, error["error"]) == (409, "ELECT_MASTER_FAILED")
        wish["confirmedOffset"] = 1000
        status, view = await admin.call("POST", GROUP + "/accept-loss", wish)
        assert (status, view["masterBrokerId"], view["clean"]) == (200, 3, False)
        assert view["confirmedOffset"] == -1
        assert view["loss"].pop("atMs") > 0
        assert view["loss"] == {
            "masterEpoch": 2,
            "brokerId": 3,
            "epoch": 1,
            "end": 400,
            "confirmedOffset": 1000,
        }

    async def test_copies_of_another_quorum_are_seen_and_adopted(self, admin: Api) -> None:
        await admin.call("PUT", GROUP, WISH)
        harness = admin.harness

        def knock(broker_id: int, epoch: int) -> None:
            ext = {"incarnation": f"i{broker_id}", "lastEpoch": str(epoch), "maxOffset": "70"}
            assert harness.register(broker_id, actedEpoch=str(epoch + 1), **ext).code != 0

        for broker_id, epoch in ((1, 7), (2, 7)):
            assert harness.join(broker_id, lastEpoch="1").code != 0
            knock(broker_id, epoch)
        third = {"clusterName": CLUSTER, "brokerName": NAME, "appliedBrokerId": "3"}
        assert harness.call(1013, {**third, "registerCheckCode": "h;3"}).code == 0
        _, view = await admin.call("GET", GROUP)
        shown = [(one["refused"], one["epoch"], one["maxOffset"]) for one in view["members"]]
        assert shown == [(True, 8, 70), (True, 8, 70), (False, -1, -1)]
        wish: dict[str, Any] = {"brokerIds": [1, 2], "masterEpoch": 0}
        status, error = await admin.call("POST", GROUP + "/adopt", wish)
        assert (status, error["message"]) == (409, "Only 2 of 3 copies are there.")
        knock(3, 6)
        status, error = await admin.call("POST", GROUP + "/adopt", wish)
        assert (status, "look again" in error["message"]) == (409, True)
        status, view = await admin.call("POST", GROUP + "/adopt", {**wish, "brokerIds": [1, 2, 3]})
        assert (status, view["masterEpoch"]) == (200, 8)
        assert harness.register(1, incarnation="i1", lastEpoch="7").code == 0

    async def test_not_while_a_controller_is_of_an_older_version(self, admin: Api) -> None:
        seen = await self.only_an_older_copy(admin)
        admin.harness.watchman.may_raise = lambda: False
        wish = {"brokerId": 3, "masterEpoch": 1, "confirmedOffset": seen["confirmedOffset"]}
        status, error = await admin.call("POST", GROUP + "/accept-loss", wish)
        assert (status, "of this version" in error["message"]) == (409, True)
        adopting = {"brokerIds": [3], "masterEpoch": 1}
        status, error = await admin.call("POST", GROUP + "/adopt", adopting)
        assert (status, "of this version" in error["message"]) == (409, True)
        assert admin.harness.elect(3, incarnation="j3").code != 0, "what was heard still counts"
        assert not admin.harness.machine.state.losses


class TestDrain:
    async def other(self, admin: Api) -> None:
        await admin.three_in_sync()
        key = {"cluster": CLUSTER, "name": "z"}
        one = BrokerId(1)
        for event in (
            DeclareGroup(**key, uid="z", replicas=1, min_in_sync_replicas=1),
            ApplyBrokerId(**key, broker_id=one, check_code="z;1"),
            RegisterBroker(**key, broker_id=one, address="z:1", incarnation="z"),
            ElectMaster(**key, live=(LiveMember(one, "z"),), first_wait_over=True),
        ):
            assert admin.harness.apply(event).ok

    async def test_is_begun_shown_and_ended(self, admin: Api) -> None:
        await self.other(admin)
        _, view = await admin.call("GET", GROUP)
        assert (view["drainBeganMs"], view["hasOthers"]) == (None, True)
        status, begun = await admin.call("PUT", GROUP + "/drain", {"uid": "u1"})
        assert (status, begun["drainBeganMs"] > 0) == (200, True)
        index = admin.harness.quorum.index
        _, again = await admin.call("PUT", GROUP + "/drain", {})
        assert again["drainBeganMs"] == begun["drainBeganMs"]
        assert admin.harness.quorum.index == index, "a repeated word is no event"
        left = {"drainDone": "false", "drainUnread": "4", "drainWaitsFor": "x" * 300}
        admin.harness.heartbeat(1, incarnation="i1", **left)
        _, view = await admin.call("GET", GROUP)
        assert view["members"][0]["drain"] == {
            "done": False,
            "unread": 4,
            "parked": 0,
            "transactions": 0,
            "waitsFor": "x" * 256,
        }
        for _ in range(2):
            status, ended = await admin.call("DELETE", GROUP + "/drain")
            assert (status, ended["drainBeganMs"]) == (200, None)
        assert admin.harness.quorum.index == index + 1

    async def test_refusals_say_why(self, admin: Api) -> None:
        await admin.three_in_sync()
        status, error = await admin.call("PUT", GROUP + "/drain", {})
        assert (status, "is the last group of cluster" in error["message"]) == (409, True)
        assert (await admin.call("GET", GROUP))[1]["hasOthers"] is False
        status, error = await admin.call("PUT", GROUP + "/drain", {"id": "u1"})
        assert (status, error["error"]) == (400, "INVALID_REQUEST")
        assert (await admin.call("PUT", GROUP + "x/drain", {}))[0] == 404

    async def test_not_while_the_brokers_of_all_others_are_dead(self, admin: Api) -> None:
        await self.other(admin)
        watchman = admin.harness.watchman
        watchman.heard((CLUSTER, "z"), Heartbeat(BrokerId(1), 2.5, "z"), 99)
        watchman.table.closed(99)
        assert watchman.table.refuse((CLUSTER, "z", BrokerId(1)), 99)
        assert (await admin.call("GET", GROUP))[1]["hasOthers"] is True, "its master may come back"
        status, error = await admin.call("PUT", GROUP + "/drain", {})
        assert (status, "has a living master" in error["message"]) == (409, True)
        assert admin.harness.machine.state.drains == {}

    async def test_not_while_a_controller_is_of_an_older_version(self, admin: Api) -> None:
        await self.other(admin)
        admin.harness.watchman.may_raise = lambda: False
        status, error = await admin.call("PUT", GROUP + "/drain", {})
        assert (status, "of this version" in error["message"]) == (409, True)
        assert admin.harness.machine.state.drains == {}

    async def test_the_master_is_told(self, admin: Api) -> None:
        await self.other(admin)
        _, begun = await admin.call("PUT", GROUP + "/drain", {})
        asked = {"clusterName": CLUSTER, "brokerName": NAME}
        answer = admin.harness.call(1004, asked)
        assert (answer.ext or {})["drainBeganMs"] == str(begun["drainBeganMs"])
        await admin.call("DELETE", GROUP + "/drain")
        assert "drainBeganMs" not in (admin.harness.call(1004, asked).ext or {})


class TestFronts:
    async def test_are_declared_shown_changed_and_removed(self, admin: Api) -> None:
        await admin.three_in_sync()
        nothing = {"fronts": [], "groups": [{"group": NAME, "index": 0, "servedByFronts": False}]}
        assert await admin.call("GET", FRONTS) == (200, nothing)
        assert (await admin.call("DELETE", FRONTS + "/f"))[0] == 204
        view = {
            "fronts": [{"name": "f", **PORTS}],
            "groups": [{"group": NAME, "index": 0, "servedByFronts": True}],
        }
        assert await admin.call("PUT", FRONTS + "/f", PORTS) == (200, view)
        index = admin.harness.quorum.index
        assert await admin.call("PUT", FRONTS + "/f", PORTS) == (200, view)
        assert (await admin.call("DELETE", FRONTS + "/g"))[0] == 204
        assert admin.harness.quorum.index == index, "repeated words are no events"
        assert await admin.call("GET", FRONTS) == (200, view)
        status, changed = await admin.call("PUT", FRONTS + "/f", {**PORTS, "ports": 3})
        assert (status, changed["fronts"][0]["ports"]) == (200, 3)
        assert (await admin.call("DELETE", FRONTS + "/f"))[0] == 204
        assert await admin.call("GET", FRONTS) == (200, nothing)

    async def test_refusals_say_why(self, admin: Api) -> None:
        status, error = await admin.call("PUT", FRONTS + "/f", PORTS)
        assert (status, error["message"]) == (
            409,
            f"There is no broker group in cluster {CLUSTER}.",
        )
        await admin.three_in_sync()
        for wrong in ({**PORTS, "ports": 65}, {**PORTS, "firstport": 1}, {"address": "h"}, b"{"):
            status, error = await admin.call("PUT", FRONTS + "/f", wrong)
            assert (status, error["error"]) == (400, "INVALID_REQUEST"), wrong
        status, error = await admin.call("PUT", FRONTS + "/f", {**PORTS, "address": "h:1"})
        assert (status, "neither a host name nor an IP" in error["message"]) == (409, True)
        assert (await admin.call("PUT", FRONTS + "/f", PORTS))[0] == 200
        status, error = await admin.call("PUT", FRONTS + "/g", PORTS)
        assert (status, error["error"]) == (409, "INVALID_REQUEST")
        assert (
            error["message"] == f"Clients of cluster {CLUSTER} are led to fronts f: remove those."
        )

    async def test_not_while_a_controller_is_of_an_older_version(self, admin: Api) -> None:
        await admin.three_in_sync()
        admin.harness.watchman.may_raise = lambda: False
        status, error = await admin.call("PUT", FRONTS + "/f", PORTS)
        assert (status, "of this version" in error["message"]) == (409, True)
        assert admin.harness.machine.state.fronts == {}


class TestAccess:
    @pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic secret", "Bearer"])
    async def test_needs_the_token(self, admin: Api, header: str) -> None:
        async with admin.session.get("/v1/groups", headers={"Authorization": header}) as response:
            assert response.status == 401

    async def test_probes_and_metrics_are_open(self, admin: Api) -> None:
        await admin.three_in_sync()
        for path in ("/livez", "/readyz", "/metrics"):
            async with admin.session.get(path, headers={"Authorization": ""}) as response:
                assert response.status == 200
        async with admin.session.get("/metrics") as response:
            text = await response.text()
        assert "gantry_controller_groups 1.0" in text
        assert "gantry_controller_brokers_heard 3.0" in text
        assert 'gantry_controller_requests_total{code="1003"} 3.0' in text
        assert "gantry_controller_raft_applied_index 3.0" in text

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("GET", "/v1/groups", None),
            ("GET", GROUP, None),
            ("PUT", GROUP, WISH),
            ("DELETE", GROUP + "?uid=u1", None),
            ("POST", GROUP + "/elect", {"brokerId": 1, "masterEpoch": 0}),
            ("GET", FRONTS, None),
            ("PUT", FRONTS + "/f", PORTS),
            ("DELETE", FRONTS + "/f", None),
            ("GET", "/v1/watch", None),
        ],
    )
    async def test_follower_names_the_leader(
        self, admin: Api, method: str, path: str, body: object
    ) -> None:
        admin.harness.quorum.follow(2)
        status, error = await admin.call(method, path, body)
        assert (status, error["error"], error["leader"]) == (421, "NOT_LEADER", LEADER)

    @pytest.mark.parametrize("path", ["/v1/groups", GROUP, FRONTS])
    async def test_follower_shows_groups_to_who_takes_anybody(self, admin: Api, path: str) -> None:
        await admin.call("PUT", GROUP, WISH)
        admin.harness.quorum.follow(2)
        assert (await admin.call("GET", f"{path}?anywhere"))[0] == 200
        assert (await admin.call("GET", path))[0] == 421

    async def test_follower_that_lags_names_the_leader_and_the_peers(self, admin: Api) -> None:
        admin.harness.quorum.follow(2)
        admin.harness.quorum.redirects = 1
        status, error = await admin.call("GET", "/v1/groups?anywhere")
        assert (status, error["leader"]) == (421, LEADER)
        assert error["peers"] == [LEADER, "http://third:9880"]
        assert "lags" in error["message"]

    async def test_only_the_leader_declares_whatever_the_query_says(self, admin: Api) -> None:
        """Nor does another say that all is as it is wished, which it may be late to know."""
        await admin.call("PUT", GROUP, WISH)
        admin.harness.quorum.follow(2)
        assert (await admin.call("PUT", f"{GROUP}?anywhere", WISH))[0] == 421

    async def test_lease_is_switched(self, admin: Api) -> None:
        status, _ = await admin.call("PUT", "/v1/quorum/lease", {"enabled": True})
        assert (status, admin.harness.quorum.lease) == (200, True)
        status, error = await admin.call("PUT", "/v1/quorum/lease", {"enabled": "perhaps"})
        assert (status, error["error"]) == (400, "INVALID_REQUEST")
        admin.harness.quorum.follow(2)
        status, error = await admin.call("PUT", "/v1/quorum/lease", {"enabled": False})
        assert (status, error["leader"]) == (421, LEADER)

    async def test_quorum_is_described_by_every_node(self, admin: Api) -> None:
        admin.harness.quorum.follow(2)
        status, view = await admin.call("GET", "/v1/quorum")
        assert (status, view["role"], view["peers"][0]["address"]) == (200, "leader", "h:9879")


class TestWatch:
    async def test_streams_lines(self, admin: Api) -> None:
        await admin.call("PUT", GROUP, WISH)
        async with admin.session.get("/v1/watch?since=0") as response:
            first = json.loads(await response.content.readline())
            assert (first["index"], first["group"], first["masterEpoch"]) == (1, NAME, 0)
            assert json.loads(await response.content.readline()) == {
                "index": 1,
                "heartbeat": True,
            }
            admin.harness.join(1)
            second = json.loads(await response.content.readline())
            assert second["index"] >= 2
            admin.hub.end_all()
            rest = await response.content.read()
            assert all(json.loads(line) for line in rest.splitlines())

    async def test_a_removal_is_told_as_one(self, admin: Api) -> None:
        await admin.call("PUT", GROUP, WISH)
        async with admin.session.get("/v1/watch?since=0") as response:
            first = json.loads(await response.content.readline())
            assert not first.get("deleted")
            await admin.call("DELETE", GROUP + "?uid=u1")
            admin.hub.end_all()
            told = [json.loads(line) for line in (await response.content.read()).splitlines()]
            assert [item["deleted"] for item in told if "group" in item] == [True]

    async def test_bounds(self, admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (await admin.call("GET", "/v1/watch?since=x"))[0] == 400
        monkeypatch.setattr("gantry_controller.admin.watch.WATCHERS_MAX", 1)
        async with admin.session.get("/v1/watch") as response:
            await response.content.readline()
            status, error = await admin.call("GET", "/v1/watch")
            assert (status, error["error"]) == (429, "TOO_MANY_WATCHERS")

    async def test_reader_that_leaves_frees_its_place(self, admin: Api) -> None:
        async with admin.session.get("/v1/watch") as response:
            await response.content.readline()
            assert len(admin.hub.watchers) == 1
        for _ in range(100):
            await admin.call("PUT", GROUP, {**WISH, "replicas": 4 + len(admin.hub.watchers)})
            if not admin.hub.watchers:
                break
        assert not admin.hub.watchers
