"""The Secret of a user is made for a resource that is there, and for no other."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.api.errors import NotFound
from gantry_operator.api.kinds import MESSAGE_USER, Kind
from gantry_operator.models.message_user import MessageUser
from gantry_operator.reconcile.hands import Seen
from gantry_operator.reconcile.users import UserHand

BODY: dict[str, Any] = {
    "apiVersion": MESSAGE_USER.api_version,
    "kind": MESSAGE_USER.kind,
    "metadata": {"name": "shop", "namespace": "mq", "uid": "first", "generation": 1},
    "spec": {"controllerRef": {"name": "c"}},
}


class Objects:
    """An API server with one object, or none, and no Secret."""

    def __init__(self, there: dict[str, Any] | None) -> None:
        self.there = there
        self.made: list[str] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        if kind is MESSAGE_USER and self.there is not None:
            return self.there
        raise NotFound(404, "NotFound", f"{kind.plural} {name}")

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        self.made.append(kind.kind)
        raise InterruptedError


ANOTHER = {**BODY, "metadata": {**BODY["metadata"], "uid": "second"}}


@pytest.mark.parametrize(
    ("there", "error", "made"),
    [
        pytest.param(BODY, InterruptedError, ["Secret"], id="there"),
        pytest.param(None, NotFound, [], id="gone"),
        pytest.param(ANOTHER, NotFound, [], id="another of the same name"),
    ],
)
async def test_no_secret_is_made_for_a_resource_that_is_gone(
    there: dict[str, Any] | None, error: type[Exception], made: list[str]
) -> None:
    api = Objects(there)
    hand = UserHand(api, tables=None, directory=None)  # type: ignore[arg-type]
    with pytest.raises(error):
        await hand.make(Seen(MESSAGE_USER, BODY, MessageUser.parse(BODY)), admin=None)  # type: ignore[arg-type]
    assert api.made == made
