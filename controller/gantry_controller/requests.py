"""The table of requests: what each one is, who answers it, with which codes.

Upstream sorts requests into three classes (rocketmq #7163): *writes* go through the log and carry
their evidence in the event; *consistent reads* are answered from a state that is as new as the
request, by any controller that has asked the leader how new that is; *unsafe reads* show the
leader's memory to people and decide nothing. A fourth class here touches no replicated state.
(Upstream's other unsafe read, ScanNeedReelect, is no request: the liveness package looks at the
leader's memory, and what it finds becomes an ElectMaster event, which is judged when applied.)

A request that changes what the quorum holds, or what it believes of who lives, needs the quorum's
key (``remoting.guard``). That is a column here, which a new row cannot leave out: a write has it,
and whoever adds a local request says whether it needs it.

The dispatchers (``remoting.dispatcher``, ``admin.api``) look each request up here and keep to its
row: a request without a row is not supported, and a handler that writes another event, reads in
another way or answers another code than its row says is a bug that an assertion names.
"""

from enum import Enum
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode

from gantry_controller.metadata.events import (
    AcceptLoss,
    AdoptGroup,
    AlterSyncStateSet,
    ApplyBrokerId,
    ChangeSettings,
    CleanBrokerData,
    CreateTopic,
    CreateUser,
    DeclareFronts,
    DeclareGroup,
    DeleteKv,
    DeleteRules,
    DeleteSubscriptionGroup,
    DeleteTopic,
    DeleteUser,
    DrainGroup,
    ElectMaster,
    EndDrain,
    FenceMember,
    ForgetImport,
    ForgetMember,
    ImportBroker,
    MapQueues,
    PutKv,
    PutRules,
    PutSubscriptionGroup,
    RegisterBroker,
    ReleaseSegments,
    RemoveFronts,
    RemoveGroup,
    ReportConsumers,
    ReportLocks,
    ReportTopic,
    ReportTopics,
    RetireGroup,
    SealQueues,
    SetAccess,
    SetWritable,
    UpdateUser,
)


class Consistency(Enum):
    """The relation of a request to the replicated state."""

    WRITE = "write"  # an event in the log; its result is the answer
    CONSISTENT_READ = "consistent read"  # linearizable
    UNSAFE_READ = "unsafe read"  # whatever the answering node has applied
    LOCAL = "local"  # nothing replicated is involved


class Answerer(Enum):
    """The controller that answers; every other one passes the request on, once."""

    LEADER = "leader"
    ANY_AT_READ_INDEX = "any, once it has applied what the leader had committed"
    ANY = "any"


class RequestClass(NamedTuple):
    """One class of requests.

    Attributes:
        name: upstream's name of the request, or what an admin route does.
        consistency: see there.
        answerer: see there.
        event: what a write puts into the log; None for all else.
        codes: what it may answer besides ``COMMON_CODES``.
        needs_key: whether a remoting sender must have shown the quorum's key (``remoting.guard``);
            admin routes have a token instead.
        named: whether it is served at the name service's port, too, which clients reach.
        without_leader: the answer while no leader can be reached.
    """

    name: str
    consistency: Consistency
    answerer: Answerer
    codes: frozenset[ResponseCode]
    needs_key: bool
    event: type | None = None
    named: bool = False
    without_leader: ResponseCode = ResponseCode.CONTROLLER_NOT_LEADER

    def allows(self, code: int) -> bool:
        """Whether ``code`` may be an answer to this request."""
        unkeyed = self.needs_key and code == ResponseCode.NO_PERMISSION
        return code in self.codes or code in COMMON_CODES or code == self.without_leader or unkeyed


COMMON_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})
"""Any request may be unreadable (1), or meet a node that is overloaded or has no quorum (2)."""

_C = ResponseCode
_NONE = frozenset({_C.SUCCESS})


def _write(name: str, event: type, *refusals: ResponseCode) -> RequestClass:
    codes = _NONE | frozenset(refusals)
    return RequestClass(
        name, Consistency.WRITE, Answerer.LEADER, codes, needs_key=True, event=event
    )


def _read(name: str, *refusals: ResponseCode) -> RequestClass:
    codes = _NONE | frozenset(refusals)
    consistency = Consistency.CONSISTENT_READ
    return RequestClass(name, consistency, Answerer.ANY_AT_READ_INDEX, codes, needs_key=False)


def _local(name: str, *refusals: ResponseCode, needs_key: bool) -> RequestClass:
    codes = _NONE | frozenset(refusals)
    return RequestClass(name, Consistency.LOCAL, Answerer.ANY, codes, needs_key=needs_key)


def _named(row: RequestClass) -> RequestClass:
    """Of the name service, whose clients take 1 as a reason to keep the route they have."""
    return row._replace(named=True, without_leader=_C.SYSTEM_ERROR)


_AMBIGUOUS = _C.CONTROLLER_INVALID_REQUEST
"""The request names no cluster, and groups of that name are in several."""

REMOTING: dict[RequestCode, RequestClass] = {
    # The controller.
    RequestCode.GANTRY_SHOW_KEY: _named(_local("ShowKey", _C.NO_PERMISSION, needs_key=False)),
    # Whom the quorum believes to live may become master. Brokers of the old kind tell name servers
    # that they live.
    RequestCode.BROKER_HEARTBEAT: _named(
        _local("BrokerHeartbeat", _C.CONTROLLER_INVALID_REQUEST, needs_key=True)
    ),
    RequestCode.GANTRY_HEARTBEATS: _local(
        "BrokerHeartbeats", _C.CONTROLLER_INVALID_REQUEST, needs_key=True
    ),
    RequestCode.GANTRY_GET_CHANGED_GROUPS: _read("GetChangedGroups"),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _write(
        "AlterSyncStateSet",
        AlterSyncStateSet,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_INVALID_REPLICAS,
        _C.CONTROLLER_BROKER_NOT_ALIVE,
        _C.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        _AMBIGUOUS,
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: _write(
        "ElectMaster",
        ElectMaster,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.CONTROLLER_MASTER_NOT_AVAILABLE,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_MASTER_STILL_EXIST,
        _C.CONTROLLER_ELECT_MASTER_FAILED,
        _AMBIGUOUS,
    ),
    RequestCode.CONTROLLER_REGISTER_BROKER: _write(
        "RegisterBroker",
        RegisterBroker,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_INVALID_REQUEST,
    ),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: _read(
        "GetReplicaInfo",
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _AMBIGUOUS,
    ),
    RequestCode.CONTROLLER_GET_METADATA_INFO: _local("GetMetadataInfo", needs_key=False),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: RequestClass(
        "GetSyncStateSet",
        Consistency.UNSAFE_READ,
        Answerer.LEADER,
        _NONE | {_AMBIGUOUS},
        needs_key=False,
    ),
    RequestCode.UPDATE_CONTROLLER_CONFIG: _local(
        "UpdateControllerConfig", _C.NO_PERMISSION, needs_key=True
    ),
    RequestCode.GET_CONTROLLER_CONFIG: _local("GetControllerConfig", needs_key=False),
    RequestCode.CLEAN_BROKER_DATA: _write(
        "CleanBrokerData",
        CleanBrokerData,
        _C.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        _AMBIGUOUS,
    ),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _read("GetNextBrokerId"),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _write(
        "ApplyBrokerId", ApplyBrokerId, _C.CONTROLLER_BROKER_ID_INVALID
    ),
    # Topics, as brokers and mqadmin ask for them.
    RequestCode.UPDATE_AND_CREATE_TOPIC: _write("CreateTopic", CreateTopic, _C.INVALID_PARAMETER),
    RequestCode.GET_ALL_TOPIC_CONFIG: _read(
        "GetAllTopicConfig", _C.CONTROLLER_BROKER_METADATA_NOT_EXIST
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: _write("DeleteTopic", DeleteTopic, _C.INVALID_PARAMETER),
    # Consumers, likewise.
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _write(
        "PutSubscriptionGroup", PutSubscriptionGroup, _C.INVALID_PARAMETER
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _read(
        "GetAllSubscriptionGroups", _C.CONTROLLER_BROKER_METADATA_NOT_EXIST, _AMBIGUOUS
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _write(
        "DeleteSubscriptionGroup", DeleteSubscriptionGroup, _C.INVALID_PARAMETER
    ),
    RequestCode.GANTRY_REPORT_CONSUMERS: _write(
        "ReportConsumers",
        ReportConsumers,
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.INVALID_PARAMETER,
        _AMBIGUOUS,
    ),
    RequestCode.GANTRY_REPORT_LOCKS: _write(
        "ReportLocks",
        ReportLocks,
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.INVALID_PARAMETER,
        _AMBIGUOUS,
    ),
    RequestCode.GANTRY_GET_LOCKS: _read(
        "GetLocks", _C.CONTROLLER_BROKER_METADATA_NOT_EXIST, _AMBIGUOUS
    ),
    RequestCode.GANTRY_REPORT_TOPICS: _write(
        "ReportTopics",
        ReportTopics,
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _AMBIGUOUS,
    ),
    RequestCode.GANTRY_GET_CONSUMERS: _read(
        "GetConsumers", _C.CONTROLLER_BROKER_METADATA_NOT_EXIST, _AMBIGUOUS
    ),
    RequestCode.GANTRY_GET_CHANGED_CONSUMERS: _read("GetChangedConsumers"),
    # Queue maps.
    RequestCode.GANTRY_GET_QUEUE_MAPS: _read("GetQueueMaps"),
    RequestCode.GANTRY_MAP_QUEUES: _write("MapQueues", MapQueues, _C.INVALID_PARAMETER),
    RequestCode.GANTRY_SEAL_QUEUES: _write(
        "SealQueues",
        SealQueues,
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.INVALID_PARAMETER,
        _AMBIGUOUS,
    ),
    RequestCode.GANTRY_RELEASE_SEGMENTS: _write(
        "ReleaseSegments",
        ReleaseSegments,
        _C.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        _C.CONTROLLER_INVALID_MASTER,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.INVALID_PARAMETER,
        _AMBIGUOUS,
    ),
    # Users. Whoever asks for them shows the key, also to read: brokers are told secrets.
    RequestCode.GANTRY_GET_ACCESS: _read("GetAccess")._replace(needs_key=True),
    RequestCode.GANTRY_SET_ACCESS: _write("SetAccess", SetAccess, _C.INVALID_PARAMETER),
    RequestCode.AUTH_CREATE_USER: _write("CreateUser", CreateUser, _C.INVALID_PARAMETER),
    RequestCode.AUTH_UPDATE_USER: _write(
        "UpdateUser", UpdateUser, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    RequestCode.AUTH_DELETE_USER: _write("DeleteUser", DeleteUser, _C.INVALID_PARAMETER),
    RequestCode.AUTH_GET_USER: _read("GetUser", _C.USER_NOT_EXIST)._replace(needs_key=True),
    RequestCode.AUTH_LIST_USER: _read("ListUsers")._replace(needs_key=True),
    RequestCode.AUTH_CREATE_ACL: _write(
        "CreateAcl", PutRules, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    RequestCode.AUTH_UPDATE_ACL: _write(
        "UpdateAcl", PutRules, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    RequestCode.AUTH_DELETE_ACL: _write(
        "DeleteAcl", DeleteRules, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    RequestCode.AUTH_GET_ACL: _read(
        "GetAcl", _C.USER_NOT_EXIST, _C.POLICY_NOT_EXIST, _C.INVALID_PARAMETER
    )._replace(needs_key=True),
    RequestCode.AUTH_LIST_ACL: _read("ListAcls")._replace(needs_key=True),
    # Fronts.
    RequestCode.GANTRY_GET_FRONT_GROUPS: _read("GetFrontGroups"),
    # The name service.
    RequestCode.PUT_KV_CONFIG: _named(_write("PutKvConfig", PutKv, _C.INVALID_PARAMETER)),
    RequestCode.GET_KV_CONFIG: _named(_read("GetKvConfig", _C.QUERY_NOT_FOUND)),
    RequestCode.DELETE_KV_CONFIG: _named(_write("DeleteKvConfig", DeleteKv)),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _named(_read("GetKvListByNamespace", _C.QUERY_NOT_FOUND)),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _named(
        _write("WipeWritePerm", SetWritable, _C.INVALID_PARAMETER)
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _named(
        _write("AddWritePerm", SetWritable, _C.INVALID_PARAMETER)
    ),
    RequestCode.UPDATE_NAMESRV_CONFIG: _named(
        _write("UpdateNameServerConfig", ChangeSettings, _C.NO_PERMISSION)
    ),
    RequestCode.GET_NAMESRV_CONFIG: _named(_read("GetNameServerConfig")),
    RequestCode.GET_UNIT_TOPIC_LIST: _named(_local("GetUnitTopicList", needs_key=False)),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _named(
        _local("GetHasUnitSubTopicList", needs_key=False)
    ),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _named(
        _local("GetHasUnitSubUnUnitTopicList", needs_key=False)
    ),
    RequestCode.QUERY_DATA_VERSION: _named(_local("QueryDataVersion", needs_key=False)),
    RequestCode.REGISTER_BROKER: _named(_write("RegisterOldBroker", ImportBroker)),
    RequestCode.UNREGISTER_BROKER: _named(_write("UnregisterOldBroker", ForgetImport)),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _named(
        _write("RegisterOldTopic", ReportTopic, _C.INVALID_PARAMETER)
    ),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _named(_read("GetRouteInfo", _C.TOPIC_NOT_EXIST)),
    RequestCode.GET_BROKER_CLUSTER_INFO: _named(_read("GetClusterInfo")),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _named(_read("GetAllTopics")),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _named(_write("DeleteTopicEverywhere", DeleteTopic)),
    RequestCode.GET_TOPICS_BY_CLUSTER: _named(_read("GetTopicsByCluster")),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _named(_read("GetSystemTopics")),
    RequestCode.GET_BROKER_MEMBER_GROUP: _named(_read("GetBrokerMemberGroup")),
}
"""Every remoting request that a controller answers."""

# Liveness, which is half of each view, is judged by the leader alone.
_ADMIN_READ = RequestClass("", Consistency.CONSISTENT_READ, Answerer.LEADER, _NONE, needs_key=False)
# Who asks for ``?anywhere`` wants what is replicated, and takes a follower's word for who lives.
_ADMIN_READ_ANYWHERE = _ADMIN_READ._replace(answerer=Answerer.ANY_AT_READ_INDEX)
# What concerns the quorum itself goes through Raft's own entries, not through the state machine.
_QUORUM = RequestClass("", Consistency.LOCAL, Answerer.LEADER, _NONE, needs_key=False)

ADMIN: dict[tuple[str, str], RequestClass] = {
    ("GET", "/v1/quorum"): _local("describe the quorum", needs_key=False),
    ("POST", "/v1/quorum/transfer"): _QUORUM._replace(name="hand the leadership over"),
    ("POST", "/v1/quorum/members"): _QUORUM._replace(name="take a learner in"),
    ("POST", "/v1/quorum/members/{id}/promote"): _QUORUM._replace(name="make a learner a voter"),
    ("DELETE", "/v1/quorum/members/{id}"): _QUORUM._replace(name="strike a member"),
    ("PUT", "/v1/quorum/lease"): _QUORUM._replace(name="turn lease reads on or off"),
    ("POST", "/v1/quorum/snapshot"): _local("make a snapshot now", needs_key=False),
    ("GET", "/v1/groups"): _ADMIN_READ_ANYWHERE._replace(name="list the groups"),
    ("GET", "/v1/groups/{cluster}/{name}"): _ADMIN_READ_ANYWHERE._replace(name="show a group"),
    ("PUT", "/v1/groups/{cluster}/{name}"): _write(
        "declare a group", DeclareGroup, _C.CONTROLLER_INVALID_REQUEST
    ),
    ("DELETE", "/v1/groups/{cluster}/{name}"): _write(
        "remove a group", RemoveGroup, _C.CONTROLLER_INVALID_REQUEST
    ),
    ("POST", "/v1/groups/{cluster}/{name}/retire"): _write(
        "retire a group", RetireGroup, _C.CONTROLLER_INVALID_REQUEST
    ),
    ("PUT", "/v1/groups/{cluster}/{name}/drain"): _write(
        "drain a group", DrainGroup, _C.CONTROLLER_INVALID_REQUEST
    ),
    ("DELETE", "/v1/groups/{cluster}/{name}/drain"): _write("end a drain", EndDrain),
    ("POST", "/v1/groups/{cluster}/{name}/forget"): _write(
        "forget a member",
        ForgetMember,
        _C.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        _C.CONTROLLER_INVALID_REQUEST,
    ),
    ("PUT", "/v1/groups/{cluster}/{name}/fence"): _write(
        "fence a member, or let it in",
        FenceMember,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_INVALID_REQUEST,
    ),
    ("POST", "/v1/groups/{cluster}/{name}/elect"): _write(
        "elect a named member",
        ElectMaster,
        _C.CONTROLLER_FENCED_MASTER_EPOCH,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_MASTER_STILL_EXIST,
        _C.CONTROLLER_ELECT_MASTER_FAILED,
    ),
    ("POST", "/v1/groups/{cluster}/{name}/accept-loss"): _write(
        "elect a member that lacks what was confirmed",
        AcceptLoss,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_ELECT_MASTER_FAILED,
        _C.CONTROLLER_INVALID_REQUEST,
    ),
    ("POST", "/v1/groups/{cluster}/{name}/adopt"): _write(
        "adopt a group of another quorum",
        AdoptGroup,
        _C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        _C.CONTROLLER_INVALID_REQUEST,
    ),
    ("POST", "/v1/groups/{cluster}/{name}/evidence"): _ADMIN_READ._replace(
        name="say that a pod is gone"
    ),
    ("GET", "/v1/clusters/{cluster}/fronts"): _ADMIN_READ_ANYWHERE._replace(name="show the fronts"),
    ("PUT", "/v1/clusters/{cluster}/fronts/{name}"): _write(
        "declare fronts", DeclareFronts, _C.CONTROLLER_INVALID_REQUEST
    ),
    ("DELETE", "/v1/clusters/{cluster}/fronts/{name}"): _write("remove fronts", RemoveFronts),
    ("GET", "/v1/clusters/{cluster}/queues"): _ADMIN_READ_ANYWHERE._replace(
        name="show the queue maps"
    ),
    ("PUT", "/v1/clusters/{cluster}/queues/{topic}"): _write(
        "make or change a queue map", MapQueues, _C.INVALID_PARAMETER
    ),
    ("POST", "/v1/clusters/{cluster}/queues-rebalance"): _write(
        "move queues so that groups have equally many", MapQueues, _C.INVALID_PARAMETER
    ),
    ("GET", "/v1/clusters/{cluster}/topics"): _ADMIN_READ_ANYWHERE._replace(name="list the topics"),
    ("PUT", "/v1/clusters/{cluster}/topics/{topic}"): _write(
        "make a topic as it is wished", CreateTopic, _C.INVALID_PARAMETER
    ),
    ("DELETE", "/v1/clusters/{cluster}/topics/{topic}"): _write(
        "delete a topic", DeleteTopic, _C.INVALID_PARAMETER
    ),
    ("GET", "/v1/clusters/{cluster}/consumer-groups"): _ADMIN_READ_ANYWHERE._replace(
        name="list the settings of consumer groups"
    ),
    ("PUT", "/v1/clusters/{cluster}/consumer-groups/{group}"): _write(
        "make the settings of a consumer group as wished",
        PutSubscriptionGroup,
        _C.INVALID_PARAMETER,
    ),
    ("DELETE", "/v1/clusters/{cluster}/consumer-groups/{group}"): _write(
        "delete the settings of a consumer group", DeleteSubscriptionGroup, _C.INVALID_PARAMETER
    ),
    # Brokers keep what was carried out; the quorum has nothing of it.
    ("POST", "/v1/clusters/{cluster}/consumer-groups/{group}/resets"): _ADMIN_READ._replace(
        name="have masters reset the offsets of a consumer group"
    ),
    ("GET", "/v1/clusters/{cluster}/access"): _ADMIN_READ_ANYWHERE._replace(
        name="show users and their rules"
    ),
    ("PUT", "/v1/clusters/{cluster}/access"): _write(
        "say whether clients need users", SetAccess, _C.INVALID_PARAMETER
    ),
    ("POST", "/v1/clusters/{cluster}/users/{user}/check"): _ADMIN_READ._replace(
        name="say whether a secret is a user's"
    ),
    ("PUT", "/v1/clusters/{cluster}/users/{user}"): _write(
        "create a user", CreateUser, _C.INVALID_PARAMETER
    ),
    ("PATCH", "/v1/clusters/{cluster}/users/{user}"): _write(
        "change a user", UpdateUser, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    ("DELETE", "/v1/clusters/{cluster}/users/{user}"): _write(
        "delete a user", DeleteUser, _C.INVALID_PARAMETER
    ),
    ("POST", "/v1/clusters/{cluster}/users/{user}/rules"): _write(
        "give a user rules", PutRules, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    ("DELETE", "/v1/clusters/{cluster}/users/{user}/rules"): _write(
        "take rules from a user", DeleteRules, _C.INVALID_PARAMETER, _C.USER_NOT_EXIST
    ),
    ("GET", "/v1/watch"): _ADMIN_READ._replace(name="watch the groups"),
}
"""Every admin route."""
