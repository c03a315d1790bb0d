"""The custom resources: what people write, what the operator reports, and the checks on both."""

from gantry_operator.models.base import Condition, ConditionStatus, InvalidSpecError
from gantry_operator.models.broker_group import BrokerGroup, BrokerGroupSpec
from gantry_operator.models.broker_group_status import (
    BrokerGroupStatus,
    DrainStatus,
    MasterStatus,
    MemberStatus,
    ShardsStatus,
    SwitchoverStatus,
)
from gantry_operator.models.controller_group import (
    ControllerGroup,
    ControllerGroupSpec,
    ControllerGroupStatus,
)
from gantry_operator.models.front_group import (
    FrontGroup,
    FrontGroupSpec,
    FrontGroupStatus,
    ServedGroup,
)
from gantry_operator.models.operations import ForgetStatus, ForgetWish, PendingChangeStatus
from gantry_operator.models.tier import Tier, TierStatus

__all__ = [
    "BrokerGroup",
    "BrokerGroupSpec",
    "BrokerGroupStatus",
    "Condition",
    "ConditionStatus",
    "ControllerGroup",
    "ControllerGroupSpec",
    "ControllerGroupStatus",
    "DrainStatus",
    "ForgetStatus",
    "ForgetWish",
    "FrontGroup",
    "FrontGroupSpec",
    "FrontGroupStatus",
    "InvalidSpecError",
    "MasterStatus",
    "MemberStatus",
    "PendingChangeStatus",
    "ServedGroup",
    "ShardsStatus",
    "SwitchoverStatus",
    "Tier",
    "TierStatus",
]
