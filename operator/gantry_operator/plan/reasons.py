"""The closed list of reasons in conditions and events; the documentation is made from it."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The reason of a condition's status. Each member's words are its documentation."""

    def __new__(cls, value: str, explanation: str) -> Reason:
        """A member with its explanation."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = explanation
        return member

    # Accepted
    VALID = "Valid", "The spec is valid and usable."
    INVALID_SPEC = "InvalidSpec", "The spec breaks a rule; the message says what to change."
    IMMUTABLE_FIELD = (
        "ImmutableFieldChanged",
        "A field that is fixed at creation differs from what exists; set it back.",
    )
    CONTROLLER_NOT_FOUND = (
        "ControllerGroupNotFound",
        "The ControllerGroup that controllerRef names is absent or invalid.",
    )
    CLUSTER_HAS_FRONTS = (
        "ClusterHasFronts",
        "Another FrontGroup, which was there before, serves the cluster; there can be one.",
    )
    VOLUMES_UNCLEAR = (
        "VolumesUnclear",
        "The volumes that exist do not say under which identity the quorum is to run.",
    )
    NAME_TAKEN = (
        "NameTaken",
        "An object with a needed name exists and belongs to somebody else; it is left alone.",
    )
    API_REFUSED = (
        "ApiRefused",
        "The API server refused a write or a read, or the controllers what was declared.",
    )

    # Available
    MASTER_ELECTED = "MasterElected", "A master serves at the current epoch."
    ELECTION_HELD_BACK = (
        "ElectionHeldBack",
        "Members live, and none is elected: they lack what was confirmed, or wait for the others.",
    )
    NO_MASTER = "NoMaster", "No master, or the master does not serve."
    WAITING_FOR_QUORUM = (
        "WaitingForQuorum",
        "The first election waits until the members have registered.",
    )
    CONTROLLER_UNREACHABLE = (
        "ControllerUnreachable",
        "The controllers cannot be asked; nothing is concluded and nothing disruptive is done.",
    )
    LEADER_ELECTED = "LeaderElected", "The quorum has a leader."
    NO_LEADER = "NoLeader", "Controllers answer, but none of them leads."

    FRONTS_DECLARED = "FrontsDeclared", "Clients are led to the fronts."
    FRONTS_NOT_DECLARED = (
        "FrontsNotDeclared",
        "The controllers do not lead clients to the fronts yet.",
    )
    NO_FRONT_READY = (
        "NoFrontReady",
        "No front is Ready; clients are led to the brokers, at the latest after a while.",
    )
    WAITING_FOR_ADDRESS = (
        "WaitingForAddress",
        "A Service of the fronts, or of a listener, has no address yet for clients.",
    )

    # ListenersServed
    LISTENERS_SERVED = "ListenersServed", "Clients of each listener are given every address."
    LISTENER_UNKNOWN = (
        "ListenerUnknown",
        "The ControllerGroup has no listener of this name, so no client comes in by it.",
    )

    CERTIFICATE_UNUSABLE = (
        "CertificateUnusable",
        "The Secret of a listener is missing, holds no certificate with its key, or an ended one.",
    )

    # GroupsServed
    ALL_GROUPS_SERVED = "AllGroupsServed", "Clients reach every broker group through the fronts."
    NO_BROKER_GROUP = "NoBrokerGroup", "The cluster has no broker group that fronts could serve."
    TOO_FEW_PORTS = (
        "TooFewPorts",
        "There are more broker groups than ports; clients reach the others at their own addresses.",
    )
    WAITING_FOR_GROUPS = (
        "WaitingForGroups",
        "The controllers have given no port to a BrokerGroup of the cluster yet.",
    )

    # InSync, FullyReplicated
    ENOUGH_IN_SYNC = "EnoughInSync", "The sync-state set has at least minInSyncReplicas members."
    LAST_IN_SYNC_REPLICA = (
        "LastInSyncReplica",
        "Only one replica is in sync; it is never taken away on purpose.",
    )
    BELOW_MIN_IN_SYNC = (
        "BelowMinInSync",
        "Fewer than minInSyncReplicas members are in sync; sends are not acknowledged.",
    )
    ALL_IN_SYNC = "AllInSync", "Every wished replica is in sync."
    REPLICA_CATCHING_UP = "ReplicaCatchingUp", "A replica is missing or not in sync yet."

    # Progressing
    SETTLED = "Settled", "Nothing disruptive is under way or wanted."
    APPLYING = "Applying", "A change of the wish is on its way to the StatefulSet."
    WAITING_FOR_TURN = (
        "WaitingForTurn",
        "The operator has a new default image, and other groups get it first.",
    )
    WAITING_FOR_APPROVAL = (
        "WaitingForApproval",
        "A change that would restart pods waits for spec.update.approved; they stay as they are.",
    )
    POD_CRASHING = (
        "PodCrashing",
        "The process of a pod ends in an error again and again; the message has its last words.",
    )
    STARTING = "Starting", "Pods are being created or are not Ready yet."
    ROLLING_UPDATE = (
        "RollingUpdate",
        "Pods are replaced one by one, the master (or the leader) last.",
    )
    CHANGING_SIZE = (
        "ChangingSize",
        "The quorum gets more or fewer members, one at a time, while those who stay are well.",
    )
    REPLACING_FRONTS = (
        "ReplacingFronts",
        "Fronts are replaced one by one; a new one is Ready before an old one ends.",
    )
    SWITCHOVER_IN_PROGRESS = "SwitchoverInProgress", "The mastership is being moved on request."
    SWITCHOVER_COMPLETED = "SwitchoverCompleted", "The requested master was elected."
    SWITCHOVER_REFUSED = "SwitchoverRefused", "The request could not be carried out safely."
    MOVING_TO_ZONE = (
        "MovingToZone",
        "The mastership moves to a replica in a zone of spec.preferredMaster.",
    )
    RAISING_MINIMUM = (
        "RaisingMinimum",
        "A higher minInSyncReplicas counts once so many replicas are in sync; the old one holds.",
    )
    SCALING_DOWN = "ScalingDown", "Replicas are removed, the highest ordinal first."
    UNSAFE_SCALE_DOWN = (
        "UnsafeScaleDown",
        "Removing a replica would leave fewer than minInSyncReplicas in sync; it waits.",
    )
    FENCING = "Fencing", "A replica is being fenced, as spec.fenced wishes; the master moves first."
    UNSAFE_FENCE = (
        "UnsafeFence",
        "Fencing a replica would stop writes, or nobody can take over; it goes on as before.",
    )
    FORGETTING = "Forgetting", "A member that is gone is being struck, as spec.forget wishes."
    FORGET_REFUSED = "ForgetRefused", "Event: the request to forget a member is refused."
    MEMBER_FORGOTTEN = "MemberForgotten", "Event: a member that is gone was struck on request."
    HIBERNATING = "Hibernating", "All pods are being stopped, as spec.hibernated wishes."
    UNSAFE_HIBERNATION = (
        "UnsafeHibernation",
        "Fewer than minInSyncReplicas are in sync, so the pods are kept until more are.",
    )
    GROWING_VOLUMES = (
        "GrowingVolumes",
        "Volumes are made larger one by one; a pod restarts only where its file system needs it.",
    )
    VOLUME_EXPANSION_REFUSED = (
        "VolumeExpansionRefused",
        "A volume does not become larger; the message says why. It is tried again.",
    )
    APPLYING_SETTINGS = (
        "ApplyingSettings",
        "Processes apply changed settings while running; the message says who has not said so yet.",
    )
    SETTINGS_REFUSED = (
        "SettingsRefused",
        "A process refuses changed settings, for the reason in the message; those before hold.",
    )
    DELETING = "Deleting", "The resource is being deleted; the message says what is waited for."
    DRAINING = (
        "Draining",
        "The resource is being deleted, or has fewer shards; what goes is consumed first.",
    )
    DRAIN_REFUSED = (
        "DrainRefused",
        "What is to go cannot be drained, and waits; the message says why, and what to do.",
    )
    QUEUES_MOVED = (
        "QueuesMoved",
        "Event: queues of mapped topics have come to the group, or have left it.",
    )
    QUEUES_MOVING = (
        "QueuesMoving",
        "Queues of mapped topics are to come to the group, or to leave it.",
    )
    DRAIN_ENDED = (
        "DrainEnded",
        "Event: the drain is over, since nothing is left or its time is; the group goes.",
    )
    REPEATING = (
        "Repeating",
        "Event: what the operator does has had no effect several times in a row; it slows down.",
    )

    # TierHealthy
    UPLOADING = "Uploading", "The master holds the tier and uploads."
    CLAIMING = "Claiming", "A new master is about to take the upload over."
    NOT_REPORTED = (
        "NotReported",
        "The master has not spoken of a tier; it was not restarted with one yet.",
    )
    STALLED = (
        "Stalled",
        "The store does not let the master upload; the message has its reason. It is tried again.",
    )
    HALTED = (
        "Halted",
        "What lies in the store must not be continued by this master; a person has to look.",
    )
    UNREADABLE = (
        "Unreadable",
        "Objects of the tier are missing or damaged; they are asked for again, the rest is served.",
    )
    HISTORY_REMOVED = (
        "HistoryRemoved",
        "The oldest objects of the tier were removed from the bucket; the rest is served.",
    )
    FENCED = (
        "Fenced",
        "Another master holds the tier; uploads go on with the next election at the latest.",
    )
    TIER_CLAIMED = "TierClaimed", "A master holds the tier from this epoch on."

    # Fenced, which is there while it is True
    MEMBERS_FENCED = (
        "MembersFenced",
        "Replicas take no part, as spec.fenced wishes, until they are taken out of it.",
    )

    # Altered, which is there while it is True
    ALTERED_BY_OTHERS = (
        "AlteredByOthers",
        "Others have added to the pod template, such as a container; it is left alone.",
    )

    # DiskFull, which is there while it is True
    NOTHING_MAY_GO = (
        "NothingMayGo",
        "A disk is nearly full and nothing of its log may be deleted; messages are refused soon.",
    )

    # LogDamaged, which is there while it is True
    NOT_REPAIRED = (
        "NotRepaired",
        "Bytes of a log are not what was written, and no member could give the right ones.",
    )

    # Events of a ControllerGroup
    VOLUMES_TAKEN_UP = (
        "VolumesTakenUp",
        "The quorum runs under the identity that the volumes of a deleted ControllerGroup carry.",
    )

    # Ready, which has the reason of what is not as it should be
    AS_WISHED = "AsWished", "The resource serves and is as its spec wishes."

    # Topics, users and consumer groups
    IN_PLACE = "InPlace", "The cluster has it as the spec wishes."
    BEING_MADE = "BeingMade", "The controllers are about to be told."
    ANOTHER_OWNS_IT = (
        "AnotherOwnsIt",
        "An older resource stands for the same name in the cluster; this one changes nothing.",
    )
    EXISTS_OTHERWISE = (
        "ExistsOtherwise",
        "It existed before with other settings; spec.adopt: true takes it over.",
    )
    QUEUES_WOULD_SHRINK = (
        "QueuesWouldShrink",
        "Fewer queues would be read than there are; spec.allowFewerQueues: true does it.",
    )
    HAS_QUEUE_MAP = (
        "HasQueueMap",
        "The topic has a queue map, which is changed as a whole by gantry queues map.",
    )
    SECRET_NOT_USABLE = (
        "SecretNotUsable",
        "The Secret with the user's secret key is absent, or has no key that can be one.",
    )
    REFUSED_BY_CONTROLLERS = (
        "RefusedByControllers",
        "The controllers refuse what is wished; the message has their words. It is tried again.",
    )
    RESET_DONE = "ResetDone", "The request to reset offsets was carried out."
    RESET_WAITS = (
        "ResetWaits",
        "The request to reset offsets is not carried out everywhere yet; it is tried again.",
    )
    RESET_REFUSED = (
        "ResetRefused",
        "The request to reset offsets is refused; mend it and give it a higher number.",
    )
    DRIFT_UNDONE = (
        "DriftUndone",
        "Event: others had changed what the resource owns; it is as wished again.",
    )

    # Hibernated, which is there with spec.hibernated
    HIBERNATED = "Hibernated", "No pod runs; volumes and members are kept."

    # Paused
    PAUSED_BY_SPEC = "PausedBySpec", "spec.paused is true."
    ACTIVE = "Active", "spec.paused is false."


GROWTH = (Reason.GROWING_VOLUMES, Reason.VOLUME_EXPANSION_REFUSED)
"""Of volumes that are to be larger."""
