"""Users of clusters and their rules (ADR 0082).

A user belongs to a cluster, and its rules to it: they go with it. Whether every request of a
client needs a user is a switch of the cluster, which is off until somebody turns it on.

Rules protected:

* Nobody locks a cluster: it is not switched on without a super user that is enabled, and the last
  one stays while it is on.
* Tools say the same to each broker of a cluster: what is as it was asked to be is success.

No sentence and no ``repr`` that is made here has a secret in it.
"""

from gantry_protocol.access.rules import (
    AccessError,
    Rule,
    User,
    UserStatus,
    UserType,
    canonical_resource,
    merged,
    secret_problem,
    user_problem,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.names import PLACE_CHARS_MAX
from gantry_protocol.types import Index
from msgspec.structs import replace

from gantry_controller.metadata.events import (
    CreateUser,
    DeleteRules,
    DeleteUser,
    PutRules,
    SetAccess,
    UpdateUser,
)
from gantry_controller.metadata.results import Result, refuse
from gantry_controller.metadata.state import MetadataState
from gantry_controller.metadata.switches import AccessSwitch

USERS_MAX = 1_000  # of one cluster; brokers are told all of them at once
RULES_MAX = 4_000  # of all users of one cluster
CLUSTERS_MAX = 64  # with users, or with the switch on

NO_KEY = (
    "This quorum has no key, so brokers could not be told its users' secrets: give all controllers "
    "and brokers a quorum_key_file first."
)
_NEVER = AccessSwitch()


def create_user(state: MetadataState, event: CreateUser) -> Result:
    """Makes a user without rules."""
    problem = _place_problem(state, event.cluster) or user_problem(event.user)
    problem = problem or secret_problem(event.secret) or _words_problem(event)
    known = state.users.get((event.cluster, event.user))
    if problem is None and known is None and len(users_of(state, event.cluster)) >= USERS_MAX:
        problem = f"Cluster {event.cluster} has {USERS_MAX} users, the most it may have."
    if problem is None and known is not None:
        if replace(known, rules=()) == User(event.secret, event.kind, event.status):
            return Result()
        problem = f"User {event.user} exists, and is not as it is to be created: update it."
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    return _put(state, event.cluster, event.user, User(event.secret, event.kind, event.status))


def update_user(state: MetadataState, event: UpdateUser) -> Result:
    """Changes what is named of a user."""
    known = state.users.get((event.cluster, event.user))
    if known is None:
        return _no_user(event.cluster, event.user)
    problem = None if event.secret is None else secret_problem(event.secret)
    problem = problem or _words_problem(event)
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    user = User(
        event.secret or known.secret,
        event.kind or known.kind,
        event.status or known.status,
        known.rules,
    )
    if _locks(state, event.cluster, event.user, user):
        return _last(event.cluster, event.user)
    return Result() if user == known else _put(state, event.cluster, event.user, user)


def delete_user(state: MetadataState, event: DeleteUser) -> Result:
    """Deletes a user and its rules; one that is not there is gone already."""
    if (event.cluster, event.user) not in state.users:
        return Result()
    if _locks(state, event.cluster, event.user, None):
        return _last(event.cluster, event.user)
    return _put(state, event.cluster, event.user, None)


def put_rules(state: MetadataState, event: PutRules) -> Result:
    """Gives a user rules; those of the same resource and type are replaced."""
    known = state.users.get((event.cluster, event.user))
    if known is None:
        return _no_user(event.cluster, event.user)
    if not event.rules:
        return refuse(ResponseCode.INVALID_PARAMETER, f"No rule for user {event.user} was named.")
    try:
        user = replace(known, rules=merged(known.rules, event.rules))
    except AccessError as error:
        return refuse(ResponseCode.INVALID_PARAMETER, str(error))
    count = sum(len(other.rules) for other in users_of(state, event.cluster).values())
    if count + len(user.rules) - len(known.rules) > RULES_MAX:
        problem = f"The users of cluster {event.cluster} have at most {RULES_MAX} rules together."
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    return Result() if user == known else _put(state, event.cluster, event.user, user)


def delete_rules(state: MetadataState, event: DeleteRules) -> Result:
    """Takes the rule on a resource away, or all; a rule that is not there is gone already."""
    known = state.users.get((event.cluster, event.user))
    if known is None:
        return _no_user(event.cluster, event.user)
    rules: tuple[Rule, ...] = ()
    if event.resource is not None:
        try:
            key = (event.policy, canonical_resource(event.resource))
        except AccessError as error:
            return refuse(ResponseCode.INVALID_PARAMETER, str(error))
        rules = tuple(rule for rule in known.rules if rule.key != key)
    if rules == known.rules:
        return Result()
    return _put(state, event.cluster, event.user, replace(known, rules=rules))


def set_access(state: MetadataState, event: SetAccess) -> Result:
    """Turns the switch of a cluster."""
    problem = _place_problem(state, event.cluster)
    switch = access_of(state, event.cluster)
    if problem is None and event.enabled and not _supers(users_of(state, event.cluster)):
        problem = (
            f"Cluster {event.cluster} has no super user that is enabled, so nobody could change "
            "anything there: create one first."
        )
    if problem is not None:
        return refuse(ResponseCode.INVALID_PARAMETER, problem)
    if switch.enabled == event.enabled:
        return Result()
    state.put_plain("access", event.cluster, AccessSwitch(event.enabled, state.index))
    return Result(changed=True)


def access_of(state: MetadataState, cluster: str) -> AccessSwitch:
    """The switch of ``cluster``; off, at index 0, where nobody ever said anything."""
    return state.access.get(cluster, _NEVER)


def users_of(state: MetadataState, cluster: str) -> dict[str, User]:
    """The users of ``cluster``, by name, sorted."""
    if cluster not in state.access:
        return {}
    found = ((name, user) for (at, name), user in state.users.items() if at == cluster)
    return dict(sorted(found))


def _put(state: MetadataState, cluster: str, name: str, user: User | None) -> Result:
    state.put_plain("users", (cluster, name), user)
    state.put_plain(
        "access", cluster, replace(access_of(state, cluster), changed=Index(state.index))
    )
    return Result(changed=True)


def _supers(users: dict[str, User]) -> list[str]:
    return [name for name, user in users.items() if user.is_super and user.is_enabled]


def _locks(state: MetadataState, cluster: str, name: str, user: User | None) -> bool:
    """Whether nobody could change anything once ``name`` is ``user``."""
    if not access_of(state, cluster).enabled:
        return False
    if user is not None and user.is_super and user.is_enabled:
        return False
    return _supers(users_of(state, cluster)) == [name]


def _last(cluster: str, name: str) -> Result:
    remark = (
        f"User {name} is the last super user of cluster {cluster} that is enabled, and access is "
        "on there: create another one first, or turn access off."
    )
    return refuse(ResponseCode.INVALID_PARAMETER, remark)


def _no_user(cluster: str, name: str) -> Result:
    return refuse(
        ResponseCode.USER_NOT_EXIST, f"There is no user {name[:64]} in cluster {cluster}."
    )


def _place_problem(state: MetadataState, cluster: str) -> str | None:
    if not cluster or len(cluster) > PLACE_CHARS_MAX:
        return f"A cluster's name has 1 to {PLACE_CHARS_MAX} characters."
    if cluster not in state.access and len(state.access) >= CLUSTERS_MAX:
        return f"At most {CLUSTERS_MAX} clusters of one quorum have users."
    return None


def _words_problem(event: CreateUser | UpdateUser) -> str | None:
    """Whoever made the event has read these words; a log is read by other versions, too."""
    if event.kind is not None and event.kind not in set(UserType):
        return f"{event.kind!r} is no type of user."
    if event.status is not None and event.status not in set(UserStatus):
        return f"{event.status!r} is no status of a user."
    return None
