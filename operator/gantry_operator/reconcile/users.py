"""Users of clusters, and the Secrets that hold their secret keys.

Rules protected: a secret key is in no status, event, log or error. It is read from its Secret by
name and handed to the controllers, who say whether it is the one that they have; nobody asks them
for it. A Secret that exists is never written; one that the operator makes goes with its resource.
The operator's own Secrets of a quorum are no user's.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_protocol.access.rules import secret_problem
from gantry_protocol.admin import RuleView, RuleWish, UserView, UserWish
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.api.errors import AlreadyExists, Denied, Invalid, NotFound, Unavailable
from gantry_operator.api.kinds import MESSAGE_USER, SECRET
from gantry_operator.builders.meta import owned
from gantry_operator.models.message_user import (
    ACCESS_KEY,
    SECRET_KEY,
    MessageUser,
    MessageUserStatus,
)
from gantry_operator.plan.objects import owner_uids
from gantry_operator.plan.users import (
    UsersHeld,
    rule_steps,
    rules_of,
    status_of,
    user_standing,
    wished_rules,
)
from gantry_operator.reconcile.hands import OneHand

if TYPE_CHECKING:
    from gantry_protocol.access.rules import Rule
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Api, Body
    from gantry_operator.models.entity import Entity, EntityStatus
    from gantry_operator.plan.entities import Compared
    from gantry_operator.quorums.directory import Directory
    from gantry_operator.reconcile.hands import Seen
    from gantry_operator.reconcile.tables import Tables

LOOK_S = 60.0
"""How long a changed Secret may go unseen: Secrets are not watched."""
RANDOM_BYTES = 32
VERIFIED_MAX = 10_000


class _Key(NamedTuple):
    """A secret key as it was read: its text, or why there is none; never shown."""

    text: str = ""
    version: str = ""
    problem: str = ""
    to_be_made: bool = False

    def __repr__(self) -> str:
        return f"_Key({self.problem!r})"


class UserHand(OneHand):
    """Users; see ``hands.Hand``.

    Args:
        api: where Secrets are read and made.
        tables: the users of clusters.
        directory: the controllers.
    """

    model: type[Entity] = MessageUser
    status: type[EntityStatus] = MessageUserStatus
    check_s = LOOK_S

    def __init__(self, api: Api, tables: Tables, directory: Directory) -> None:
        self._api = api
        self._tables = tables
        self._directory = directory
        # By place: the version of the Secret and the stamp of the users at which both agreed.
        self._verified: dict[tuple[str, str, str], tuple[str, str]] = {}

    def told(self, seen: Seen) -> dict[str, Any]:
        """The Secret's name."""
        return {"secret": _secret_of(seen)[0]} if seen.entity is not None else {}

    async def standing(self, seen: Seen) -> Compared:
        """The user in the cluster, compared with the wish.

        Raises:
            ApiError: the API server did not say what is in the Secret.
        """
        entity = _user(seen)
        held = await self._tables.users(*seen.cluster)
        if isinstance(held, Unreachable):
            return user_standing(
                seen.place.named, entity.spec, held, secret_problem="", secret_matches=None
            )
        key = await self._read(seen)
        matches: bool | None = False
        if seen.place.named in held.users and key.text:
            matches = await self._matches(seen, key, held)
        return user_standing(
            seen.place.named,
            entity.spec,
            held,
            secret_problem=key.problem,
            secret_matches=matches,
            secret_is_new=self._is_new(seen, key),
        )

    async def make(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers make it as wished, and makes its Secret first if need be.

        Raises:
            AdminRefusedError: they refuse it, or the Secret has gone meanwhile.
        """
        spec, name = _user(seen).spec, seen.place.named
        key = await self._ensured(seen)
        held = await self._tables.users(*seen.cluster)
        if isinstance(held, Unreachable):
            raise QuorumUnreachableError(held.reason)
        known = held.users.get(name)
        wish = UserWish(secret=key.text, type=spec.type, status=status_of(spec))
        if known is None:
            await admin.create_user(name, wish)
        else:
            await admin.update_user(name, wish)
        wished = wished_rules(spec)
        steps = rule_steps([] if known is None else rules_of(known), wished)
        for put in (False, True) if steps.delete_first else (True, False):
            if put and steps.put:
                await admin.put_rules(name, [_wish_of(rule) for rule in steps.put])
            for policy, resource in () if put else steps.delete:
                await admin.delete_rules(name, resource, policy)
        row = UserView(
            name=name,
            type=spec.type,
            status=status_of(spec),
            rules=[_view_of(rule) for rule in sorted(wished, key=lambda rule: rule.key)],
        )
        self._tables.wrote(MESSAGE_USER.kind, *seen.cluster, name, row)
        self._note(seen, key.version, held.stamp)

    async def remove(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers remove it."""
        await admin.delete_user(seen.place.named)
        self._tables.wrote(MESSAGE_USER.kind, *seen.cluster, seen.place.named, None)
        self._verified.pop((*seen.cluster, seen.place.named), None)

    async def _matches(self, seen: Seen, key: _Key, held: UsersHeld) -> bool | None:
        """Whether the user has this secret, asked once for each state of the two."""
        place = (*seen.cluster, seen.place.named)
        if held.stamp and self._verified.get(place) == (key.version, held.stamp):
            return True
        try:
            admin = self._directory.admin(*seen.cluster)
            matches = await admin.is_secret_of(seen.place.named, key.text)
        except AdminRefusedError as error:
            return False if error.code == "NOT_FOUND" else None
        except QuorumUnreachableError:
            return None
        if matches:
            self._note(seen, key.version, held.stamp)
        return matches

    def _is_new(self, seen: Seen, key: _Key) -> bool:
        verified = self._verified.get((*seen.cluster, seen.place.named))
        return key.to_be_made or (verified is not None and verified[0] != key.version)

    def _note(self, seen: Seen, version: str, stamp: str) -> None:
        self._verified[(*seen.cluster, seen.place.named)] = (version, stamp)
        if len(self._verified) > VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]

    async def _read(self, seen: Seen) -> _Key:
        """The secret key, or why there is none; one that is to be made is no problem."""
        name, entry = _secret_of(seen)
        generated = _user(seen).spec.secret_ref is None
        if name in names.secrets(seen.cluster[1]):
            return _Key(problem=f"Secret {name} is the quorum's own: name another one.")
        try:
            body = await self._api.get(SECRET, seen.meta.namespace, name)
        except NotFound:
            if generated:
                return _Key(to_be_made=True)
            return _Key(problem=f"There is no Secret {name}: create it with the key {entry}.")
        except (Denied, Unavailable) as error:
            if error.status == 0:
                raise
            return _Key(problem=f"Secret {name} cannot be read: {error.message}")
        if generated and not _owned_by(body, seen.meta.uid):
            return _Key(
                problem=f"Secret {name} exists and is not of this resource: name it in "
                "spec.secretRef, or delete it."
            )
        return _key_in(body, name, entry)

    async def _ensured(self, seen: Seen) -> _Key:
        key = await self._read(seen)
        if key.to_be_made:
            await self._must_be_there(seen)
            text = secrets.token_urlsafe(RANDOM_BYTES)
            try:
                made = await self._api.create(SECRET, _secret(seen, text))
            except AlreadyExists:
                key = await self._read(seen)
            except (Denied, Invalid) as error:
                why = f"Secret {names.user_secret(seen.meta.name)} is refused: {error.message}"
                raise AdminRefusedError(error.status, "SECRET_NOT_MADE", why) from error
            else:
                key = _Key(text, made["metadata"].get("resourceVersion", ""))
        if not key.text:
            why = key.problem or "The Secret has gone meanwhile."
            raise AdminRefusedError(409, "SECRET_NOT_USABLE", why)
        return key

    async def _must_be_there(self, seen: Seen) -> None:
        """Refuses what is gone: its Secret would go at once, and be made again, and so on.

        Raises:
            NotFound: the resource is gone, and no watch has said so yet.
        """
        body = await self._api.get(MESSAGE_USER, seen.meta.namespace, seen.meta.name)
        if body["metadata"].get("uid") != seen.meta.uid:
            raise NotFound(404, "NotFound", f"MessageUser {seen.meta.name} is another one now")


def _secret_of(seen: Seen) -> tuple[str, str]:
    """The name of the Secret, and the key in it."""
    referred = _user(seen).spec.secret_ref
    if referred is None:
        return names.user_secret(seen.meta.name), SECRET_KEY
    return referred.name, referred.key


def _user(seen: Seen) -> MessageUser:
    assert isinstance(seen.entity, MessageUser), "what cannot be read is compared with nothing"
    return seen.entity


def _owned_by(body: Body, uid: str) -> bool:
    return uid in owner_uids(body)


def _key_in(body: Body, name: str, entry: str) -> _Key:
    """The text of one key of a Secret; a line's end behind it, as of a file, does not count."""
    encoded = (body.get("data") or {}).get(entry)
    if not isinstance(encoded, str):
        return _Key(problem=f"Secret {name} has no key {entry}: add it.")
    try:
        text = base64.b64decode(encoded, validate=True).decode().rstrip("\r\n")
    except (binascii.Error, ValueError):
        return _Key(problem=f"Secret {name}, key {entry}, is no text: replace it.")
    problem = secret_problem(text)
    if problem is not None:
        return _Key(problem=f"Secret {name}, key {entry}, cannot be a user's secret. {problem}")
    return _Key(text, body["metadata"].get("resourceVersion", ""))


def _secret(seen: Seen, text: str) -> Body:
    """The Secret of a user that names none."""
    body = owned(_user(seen), names.USER, "v1", "Secret", names.user_secret(seen.meta.name))
    content = {ACCESS_KEY: seen.place.named, SECRET_KEY: text}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return body | {"type": "Opaque", "data": data}


def _wish_of(rule: Rule) -> RuleWish:
    return RuleWish(
        resource=rule.resource,
        actions=list(rule.actions),
        sources=list(rule.sources),
        decision=rule.decision,
        policy=rule.policy,
    )


def _view_of(rule: Rule) -> RuleView:
    return RuleView.model_validate(_wish_of(rule).model_dump())
