"""The admin API's routes about users and their rules; no answer has a secret in it (ADR 0082)."""

from hmac import compare_digest

from aiohttp import web
from gantry_protocol.access.rules import (
    AccessError,
    User,
    UserStatus,
    UserType,
    make_rule,
    policy_type,
    user_status,
    user_type,
)
from gantry_protocol.admin import (
    AccessView,
    AccessWish,
    RulesWish,
    RuleView,
    SecretCheck,
    SecretCheckView,
    UserView,
    UserWish,
)
from gantry_protocol.process.probes import HttpServer

from gantry_controller.admin.api import AdminApi, ApiRefusal, Handler, read_body
from gantry_controller.metadata.events import (
    CreateUser,
    DeleteRules,
    DeleteUser,
    Event,
    PutRules,
    SetAccess,
    UpdateUser,
)
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import MetadataState
from gantry_controller.metadata.users import NO_KEY, access_of, users_of
from gantry_controller.requests import ADMIN


class AccessApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        machine: the applied state.
        has_key: whether this quorum has a key.
    """

    def __init__(self, api: AdminApi, machine: MetadataStateMachine, *, has_key: bool) -> None:
        self._api = api
        self._machine = machine
        self._has_key = has_key

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        cluster = "/v1/clusters/{cluster}"
        user = cluster + "/users/{user}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", cluster + "/access", self._get),
            ("PUT", cluster + "/access", self._set),
            ("POST", user + "/check", self._check),
            ("PUT", user, self._create),
            ("PATCH", user, self._update),
            ("DELETE", user, self._delete),
            ("POST", user + "/rules", self._put_rules),
            ("DELETE", user + "/rules", self._delete_rules),
        ]
        for method, path, handler in routes:
            server.add_route(
                method, path, self._api.guarded(_refusing(handler), ADMIN[method, path])
            )

    async def _get(self, request: web.Request) -> web.Response:
        return self._view(request.match_info["cluster"])

    async def _set(self, request: web.Request) -> web.Response:
        wish = await read_body(request, AccessWish)
        if wish.enabled and not self._has_key:
            raise ApiRefusal(409, "INVALID_PARAMETER", NO_KEY)
        return await self._write(
            request, SetAccess(cluster=_cluster(request), enabled=wish.enabled)
        )

    async def _check(self, request: web.Request) -> web.Response:
        """Whoever may change users may ask whether a secret is a user's; nobody is told one."""
        wish = await read_body(request, SecretCheck)
        cluster, name = _cluster(request), request.match_info["user"]
        user = self._machine.state.users.get((cluster, name))
        if user is None:
            raise ApiRefusal(404, "NOT_FOUND", f"There is no user {name[:64]} in {cluster}.")
        matches = compare_digest(user.secret.encode(), wish.secret.encode())
        return web.json_response(text=SecretCheckView(matches=matches).to_json())

    async def _create(self, request: web.Request) -> web.Response:
        wish = await read_body(request, UserWish)
        event = CreateUser(
            cluster=_cluster(request),
            user=request.match_info["user"],
            secret=wish.secret or "",
            kind=user_type(wish.type or UserType.NORMAL).value,
            status=user_status(wish.status or UserStatus.ENABLE).value,
        )
        return await self._write(request, event)

    async def _update(self, request: web.Request) -> web.Response:
        wish = await read_body(request, UserWish)
        event = UpdateUser(
            cluster=_cluster(request),
            user=request.match_info["user"],
            secret=wish.secret,
            kind=None if wish.type is None else user_type(wish.type).value,
            status=None if wish.status is None else user_status(wish.status).value,
        )
        return await self._write(request, event)

    async def _delete(self, request: web.Request) -> web.Response:
        event = DeleteUser(cluster=_cluster(request), user=request.match_info["user"])
        return await self._write(request, event)

    async def _put_rules(self, request: web.Request) -> web.Response:
        wish = await read_body(request, RulesWish)
        rules = [
            make_rule(item.resource, item.actions, item.sources, item.decision, item.policy)
            for item in wish.rules
        ]
        event = PutRules(
            cluster=_cluster(request), user=request.match_info["user"], rules=tuple(rules)
        )
        return await self._write(request, event)

    async def _delete_rules(self, request: web.Request) -> web.Response:
        event = DeleteRules(
            cluster=_cluster(request),
            user=request.match_info["user"],
            policy=policy_type(request.query.get("policy")).value,
            resource=request.query.get("resource"),
        )
        return await self._write(request, event)

    async def _write(self, request: web.Request, event: Event) -> web.Response:
        self._api.all_must_know_its_events()
        await self._api.write(event)
        return self._view(_cluster(request))

    def _view(self, cluster: str) -> web.Response:
        return web.json_response(text=access_view(self._machine.state, cluster).to_json())


def access_view(state: MetadataState, cluster: str) -> AccessView:
    """The users of ``cluster`` and their rules, without secrets."""
    switch = access_of(state, cluster)
    return AccessView(
        enabled=switch.enabled,
        changed=switch.changed,
        users=[_user_view(name, user) for name, user in users_of(state, cluster).items()],
    )


def _user_view(name: str, user: User) -> UserView:
    rules = [
        RuleView(
            resource=rule.resource,
            actions=list(rule.actions),
            sources=list(rule.sources),
            decision=rule.decision,
            policy=rule.policy,
        )
        for rule in user.rules
    ]
    return UserView(name=name, type=user.kind, status=user.status, rules=rules)


def _cluster(request: web.Request) -> str:
    return request.match_info["cluster"]


def _refusing(handler: Handler) -> Handler:
    """``handler``, whose words about what cannot be are answers."""

    async def refusing(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except AccessError as error:
            raise ApiRefusal(400, "INVALID_PARAMETER", str(error)) from error

    return refusing
