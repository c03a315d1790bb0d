"""Users at the controller: changed, shown without their secrets, and told to brokers (ADR 0082).

Brokers ask for all users of their cluster (GetAccess, 31017) and wait for news. Secrets are told
only on a connection on which the quorum's key was shown, whatever else the quorum lets in: anybody
else hears whether access is on, and no user, so that a broker without the key serves nobody.
"""

from collections.abc import Callable

from gantry_protocol.access.rules import (
    UserStatus,
    UserType,
    policy_type,
    subject_user,
    user_status,
    user_type,
)
from gantry_protocol.bodies import decode_request, encode_body
from gantry_protocol.bodies.access import (
    AclInfo,
    ClusterAccess,
    UserInfo,
    acl_info,
    rules_of,
    user_info,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext
from gantry_protocol.headers.access import (
    WAIT_MAX_MS,
    AclRequestHeader,
    DeleteAclRequestHeader,
    GetAccessRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    SetAccessRequestHeader,
    UserRequestHeader,
)
from gantry_protocol.process import log

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
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.users import NO_KEY, access_of, users_of
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve
from gantry_controller.remoting.long_polls import LongPolls

UserEvent = CreateUser | UpdateUser | DeleteUser | PutRules | DeleteRules | SetAccess
_USER_EVENTS = (CreateUser, UpdateUser, DeleteUser, PutRules, DeleteRules, SetAccess)
_NEW_EVENTS = "Not all controllers are of this version yet: finish their roll-out first"

_log = log.get("access")


class UserRequests:
    """Handlers of the requests about users on one node.

    Args:
        dispatcher: the way into the log and back.
        machine: the applied state.
        all_know: whether no controller is of a version that would stop at the events; None while
            that is not known.

    Attributes:
        polls: questions that wait for news.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machine: MetadataStateMachine,
        all_know: Callable[[], bool | None],
    ) -> None:
        self.polls = LongPolls(dispatcher)
        self._dispatcher = dispatcher
        self._machine = machine
        self._all_know = all_know
        machine.add_listener(self._applied)
        machine.add_restore_listener(self.polls.wake_all)

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {
            RequestCode.GANTRY_GET_ACCESS: self._access,
            RequestCode.GANTRY_SET_ACCESS: self._set_access,
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._put_rules,
            RequestCode.AUTH_UPDATE_ACL: self._put_rules,
            RequestCode.AUTH_DELETE_ACL: self._delete_rules,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }

    # ---- brokers

    def _access(self, exchange: Exchange) -> None:
        """GetAccess (31017)."""
        header = from_ext(GetAccessRequestHeader, exchange.request.ext)
        cluster = header.cluster_name
        is_trusted = exchange.connection.believed and not header.no_secrets
        if not is_trusted:  # the leader would believe this node, which may pass it on
            exchange.request.ext = {**(exchange.request.ext or {}), "noSecrets": "true"}

        def told() -> ClusterAccess:
            switch = access_of(self._machine.state, cluster)
            if switch.changed == header.known_index:
                return ClusterAccess(switch.changed, switch.enabled)
            users = users_of(self._machine.state, cluster) if is_trusted else {}
            return ClusterAccess(switch.changed, switch.enabled, is_news=True, users=users)

        def news() -> RemotingCommand | None:
            body = told()
            return reply(exchange.request, body=encode_body(body)) if body.is_news else None

        def nothing() -> RemotingCommand:
            return reply(exchange.request, body=encode_body(told()))

        wait_s = min(header.wait_ms, WAIT_MAX_MS) / 1000
        self.polls.serve(exchange, cluster, wait_s, news, nothing)

    def _set_access(self, exchange: Exchange) -> RemotingCommand | None:
        """SetAccess (31018)."""
        header = from_ext(SetAccessRequestHeader, exchange.request.ext)
        if header.enabled and not self._dispatcher.guard.has_key:
            return reply(exchange.request, ResponseCode.INVALID_PARAMETER, NO_KEY)
        event = SetAccess(cluster=header.cluster_name, enabled=header.enabled)
        return self._write(exchange, event)

    # ---- users

    def _create_user(self, exchange: Exchange) -> RemotingCommand | None:
        header, info = self._user_wish(exchange)
        event = CreateUser(
            cluster=header.cluster_name,
            user=header.username,
            secret=info.password or "",
            kind=user_type(info.user_type or UserType.NORMAL).value,
            status=user_status(info.user_status or UserStatus.ENABLE).value,
        )
        return self._write(exchange, event)

    def _update_user(self, exchange: Exchange) -> RemotingCommand | None:
        header, info = self._user_wish(exchange)
        event = UpdateUser(
            cluster=header.cluster_name,
            user=header.username,
            secret=info.password or None,
            kind=user_type(info.user_type).value if info.user_type else None,
            status=user_status(info.user_status).value if info.user_status else None,
        )
        return self._write(exchange, event)

    def _delete_user(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(UserRequestHeader, exchange.request.ext)
        event = DeleteUser(cluster=header.cluster_name, user=header.username)
        return self._write(exchange, event)

    def _get_user(self, exchange: Exchange) -> None:
        header = from_ext(UserRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            user = self._machine.state.users.get((header.cluster_name, header.username))
            if user is None:
                remark = f"There is no user {header.username} in cluster {header.cluster_name}."
                return reply(exchange.request, ResponseCode.USER_NOT_EXIST, remark)
            return reply(exchange.request, body=encode_body(user_info(header.username, user)))

        self._dispatcher.read(exchange, answer)

    def _list_users(self, exchange: Exchange) -> None:
        header = from_ext(ListUsersRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            users = users_of(self._machine.state, header.cluster_name)
            found = [
                user_info(name, user)
                for name, user in users.items()
                if (header.filter or "") in name
            ]
            return reply(exchange.request, body=encode_body(found))

        self._dispatcher.read(exchange, answer)

    @staticmethod
    def _user_wish(exchange: Exchange) -> tuple[UserRequestHeader, UserInfo]:
        header = from_ext(UserRequestHeader, exchange.request.ext)
        return header, decode_request(UserInfo, exchange.request.body)

    # ---- rules

    def _put_rules(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(AclRequestHeader, exchange.request.ext)
        event = PutRules(
            cluster=header.cluster_name,
            user=subject_user(header.subject),
            rules=tuple(rules_of(decode_request(AclInfo, exchange.request.body))),
        )
        return self._write(exchange, event)

    def _delete_rules(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(DeleteAclRequestHeader, exchange.request.ext)
        event = DeleteRules(
            cluster=header.cluster_name,
            user=subject_user(header.subject),
            policy=policy_type(header.policy_type).value,
            resource=header.resource or None,
        )
        return self._write(exchange, event)

    def _get_acl(self, exchange: Exchange) -> None:
        header = from_ext(AclRequestHeader, exchange.request.ext)
        name = subject_user(header.subject)

        def answer() -> RemotingCommand:
            user = self._machine.state.users.get((header.cluster_name, name))
            if user is None:
                remark = f"There is no user {name} in cluster {header.cluster_name}."
                return reply(exchange.request, ResponseCode.USER_NOT_EXIST, remark)
            if not user.rules:
                remark = f"User {name} has no rules."
                return reply(exchange.request, ResponseCode.POLICY_NOT_EXIST, remark)
            return reply(exchange.request, body=encode_body(acl_info(name, user)))

        self._dispatcher.read(exchange, answer)

    def _list_acls(self, exchange: Exchange) -> None:
        header = from_ext(ListAclsRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            found = [
                acl_info(name, user, header.resource_filter or "")
                for name, user in users_of(self._machine.state, header.cluster_name).items()
                if (header.subject_filter or "") in f"User:{name}"
            ]
            return reply(
                exchange.request, body=encode_body([item for item in found if item.policies])
            )

        self._dispatcher.read(exchange, answer)

    # ---- inside

    def _write(self, exchange: Exchange, event: UserEvent) -> RemotingCommand | None:
        if not self._all_know():
            return reply(exchange.request, ResponseCode.SYSTEM_BUSY, _NEW_EVENTS)

        def answer(result: Result) -> RemotingCommand:
            if result.changed:
                change = type(event).__name__
                user = "" if isinstance(event, SetAccess) else event.user
                _log.info("access changed", change=change, cluster=event.cluster, user=user)
            return reply(exchange.request, result.code, result.remark)

        self._dispatcher.write(exchange, event, answer)
        return None

    def _applied(self, event: Event, result: Result) -> None:
        if isinstance(event, _USER_EVENTS):
            self.polls.wake(event.cluster)
