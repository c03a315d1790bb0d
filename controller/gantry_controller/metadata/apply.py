"""One event onto the state: the only way anything changes.

Deterministic: equal states and equal events give equal states and equal results, whatever the
process, its hash seed or its clock. Each branch decides first and writes last, in assignments that
cannot fail, so that no exception leaves half an update.
"""

from typing import assert_never

from gantry_protocol.types import Index

from gantry_controller.metadata.drains import drain_group, end_drain
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
    Event,
    FenceMember,
    ForgetConsumers,
    ForgetImport,
    ForgetMember,
    ImportBroker,
    MapQueues,
    PutKv,
    PutRules,
    PutSubscriptionGroup,
    RaiseFloors,
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
    TakeShare,
    TakeTopics,
    UpdateUser,
)
from gantry_controller.metadata.fencing import fence_member
from gantry_controller.metadata.floors import accept_loss, raise_floors
from gantry_controller.metadata.fronts import declare_fronts, remove_fronts
from gantry_controller.metadata.groups import (
    adopt_group,
    apply_broker_id,
    clean_broker_data,
    declare_group,
    forget_member,
    register_broker,
    remove_group,
    retire_group,
)
from gantry_controller.metadata.locks import report_locks
from gantry_controller.metadata.mastership import alter_sync_state_set, elect_master
from gantry_controller.metadata.names import change_settings, delete_kv, put_kv, set_writable
from gantry_controller.metadata.newcomers import take_topics
from gantry_controller.metadata.queue_maps import map_queues, release_segments, seal_queues
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.shares import take_share
from gantry_controller.metadata.state import MetadataState
from gantry_controller.metadata.subscriptions import (
    delete_subscription_group,
    forget_consumers,
    put_subscription_group,
    report_consumers,
)
from gantry_controller.metadata.topics import (
    create_topic,
    delete_topic,
    forget_import,
    import_broker,
    report_topic,
    report_topics,
)
from gantry_controller.metadata.users import (
    create_user,
    delete_rules,
    delete_user,
    put_rules,
    set_access,
    update_user,
)


def apply(  # noqa: C901 - a table of one line per event, which mypy checks for completeness
    state: MetadataState, index: Index, event: Event
) -> Result:
    """Changes ``state`` by the event at ``index`` and returns the answer."""
    state.index = index
    match event:
        case AlterSyncStateSet():
            return alter_sync_state_set(state, event)
        case ElectMaster():
            return elect_master(state, event)
        case RaiseFloors():
            return raise_floors(state, event)
        case AcceptLoss():
            return accept_loss(state, event)
        case AdoptGroup():
            return adopt_group(state, event)
        case RegisterBroker():
            return register_broker(state, event)
        case ApplyBrokerId():
            return apply_broker_id(state, event)
        case CleanBrokerData():
            return clean_broker_data(state, event)
        case DeclareGroup():
            return declare_group(state, event)
        case RemoveGroup():
            return remove_group(state, event)
        case RetireGroup():
            return retire_group(state, event)
        case ForgetMember():
            return forget_member(state, event)
        case FenceMember():
            return fence_member(state, event)
        case CreateTopic():
            return create_topic(state, event)
        case DeleteTopic():
            return delete_topic(state, event)
        case ImportBroker():
            return import_broker(state, event)
        case ForgetImport():
            return forget_import(state, event)
        case PutSubscriptionGroup():
            return put_subscription_group(state, event)
        case DeleteSubscriptionGroup():
            return delete_subscription_group(state, event)
        case ReportConsumers():
            return report_consumers(state, event)
        case ReportLocks():
            return report_locks(state, event)
        case ForgetConsumers():
            return forget_consumers(state, event)
        case PutKv():
            return put_kv(state, event)
        case DeleteKv():
            return delete_kv(state, event)
        case SetWritable():
            return set_writable(state, event)
        case ChangeSettings():
            return change_settings(state, event)
        case ReportTopic():
            return report_topic(state, event)
        case ReportTopics():
            return report_topics(state, event)
        case DeclareFronts():
            return declare_fronts(state, event)
        case RemoveFronts():
            return remove_fronts(state, event)
        case TakeTopics():
            return take_topics(state, event)
        case TakeShare():
            return take_share(state, event)
        case DrainGroup():
            return drain_group(state, event)
        case EndDrain():
            return end_drain(state, event)
        case MapQueues():
            return map_queues(state, event)
        case SealQueues():
            return seal_queues(state, event)
        case ReleaseSegments():
            return release_segments(state, event)
        case CreateUser():
            return create_user(state, event)
        case UpdateUser():
            return update_user(state, event)
        case DeleteUser():
            return delete_user(state, event)
        case PutRules():
            return put_rules(state, event)
        case DeleteRules():
            return delete_rules(state, event)
        case SetAccess():
            return set_access(state, event)
        case _:
            assert_never(event)
