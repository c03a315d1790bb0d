"""The admin API's routes about users: as the command line asks, and without secrets."""

import json

from support.admin_api import Api
from support.controller_dispatcher import CLUSTER

ACCESS, USERS = f"/v1/clusters/{CLUSTER}/access", f"/v1/clusters/{CLUSTER}/users"
SECRET = "hush-hush-hush"


async def test_users_and_rules_are_made_shown_and_gone(admin: Api) -> None:
    status, view = await admin.call("PUT", USERS + "/ada", {"secret": SECRET, "type": "super"})
    assert status == 200
    assert view.pop("changed") == admin.harness.quorum.index
    assert view == {
        "enabled": False,
        "users": [{"name": "ada", "type": "Super", "status": "enable", "rules": []}],
    }
    rules = {"rules": [{"resource": "topic:t*", "actions": ["pub"], "sources": ["10.0.0.7/8"]}]}
    status, view = await admin.call("POST", USERS + "/ada/rules", rules)
    assert view["users"][0]["rules"] == [
        {
            "resource": "Topic:t*",
            "actions": ["Pub"],
            "sources": ["10.0.0.0/8"],
            "decision": "Allow",
            "policy": "Custom",
        }
    ]
    assert (await admin.call("PUT", ACCESS, {"enabled": True}))[1]["enabled"]
    status, view = await admin.call("PATCH", USERS + "/ada", {"status": "disable"})
    assert status == 409
    assert "last super user" in view["message"]
    status, view = await admin.call("DELETE", USERS + "/ada/rules?resource=Topic:t*")
    assert view["users"][0]["rules"] == []
    assert not (await admin.call("PUT", ACCESS, {"enabled": False}))[1]["enabled"]
    status, view = await admin.call("DELETE", USERS + "/ada")
    assert (status, view["users"]) == (200, [])


async def test_what_cannot_be_is_refused_without_the_secret(admin: Api) -> None:
    for method, path, body, wanted in (
        ("PUT", "/a%20b", {"secret": SECRET}, 409),
        ("PUT", "/ada", {"secret": SECRET, "type": "root"}, 400),
        ("PUT", "/ada", {"secret": "short"}, 409),
        ("PATCH", "/nobody", {"secret": SECRET}, 409),
        ("PATCH", "/nobody", {"secret": SECRET, "more": 1}, 400),
        ("POST", "/nobody/rules", {"rules": [{"resource": "X:t", "actions": ["Pub"]}]}, 400),
        ("DELETE", "/nobody/rules?policy=other", None, 400),
    ):
        status, view = await admin.call(method, USERS + path, body)
        assert status == wanted, (path, status, view)
        assert SECRET not in json.dumps(view)
    status, view = await admin.call("PUT", ACCESS, {"enabled": True})
    assert status == 409
    assert "create one first" in view["message"]


async def test_a_secret_is_compared_and_never_told(admin: Api) -> None:
    await admin.call("PUT", USERS + "/ada", {"secret": SECRET})
    before = admin.harness.quorum.index
    check = USERS + "/ada/check"
    assert await admin.call("POST", check, {"secret": SECRET}) == (200, {"matches": True})
    assert await admin.call("POST", check, {"secret": "another-one"}) == (200, {"matches": False})
    assert admin.harness.quorum.index == before
    status, view = await admin.call("POST", USERS + "/eve/check", {"secret": SECRET})
    assert (status, view["error"]) == (404, "NOT_FOUND")
