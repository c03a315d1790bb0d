"""The messages of ``apache.rocketmq.v2``, from the descriptors that the build made.

They live in a pool of their own, so a process that also holds a client's copy of them, perhaps of
another version, has no conflict.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "apache.rocketmq.v2"


def _pool() -> Any:
    described = descriptor_pb2.FileDescriptorSet()
    described.ParseFromString(files(__name__).joinpath("descriptors.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    return pool


_POOL = _pool()


def _kind(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _numbers(name: str) -> dict[str, int]:
    return {item.name: item.number for item in _POOL.FindEnumTypeByName(f"{PACKAGE}.{name}").values}


AckMessageRequest = _kind("AckMessageRequest")
AckMessageResponse = _kind("AckMessageResponse")
ChangeLogLevelRequest = _kind("ChangeLogLevelRequest")
ChangeLogLevelResponse = _kind("ChangeLogLevelResponse")
ChangeInvisibleDurationRequest = _kind("ChangeInvisibleDurationRequest")
ChangeInvisibleDurationResponse = _kind("ChangeInvisibleDurationResponse")
EndTransactionRequest = _kind("EndTransactionRequest")
EndTransactionResponse = _kind("EndTransactionResponse")
ForwardMessageToDeadLetterQueueRequest = _kind("ForwardMessageToDeadLetterQueueRequest")
ForwardMessageToDeadLetterQueueResponse = _kind("ForwardMessageToDeadLetterQueueResponse")
GetOffsetRequest = _kind("GetOffsetRequest")
GetOffsetResponse = _kind("GetOffsetResponse")
HeartbeatRequest = _kind("HeartbeatRequest")
HeartbeatResponse = _kind("HeartbeatResponse")
Message = _kind("Message")
NotifyClientTerminationRequest = _kind("NotifyClientTerminationRequest")
NotifyClientTerminationResponse = _kind("NotifyClientTerminationResponse")
PullMessageRequest = _kind("PullMessageRequest")
PullMessageResponse = _kind("PullMessageResponse")
QueryAssignmentRequest = _kind("QueryAssignmentRequest")
QueryAssignmentResponse = _kind("QueryAssignmentResponse")
QueryOffsetRequest = _kind("QueryOffsetRequest")
QueryOffsetResponse = _kind("QueryOffsetResponse")
QueryRouteRequest = _kind("QueryRouteRequest")
QueryRouteResponse = _kind("QueryRouteResponse")
RecallMessageRequest = _kind("RecallMessageRequest")
RecallMessageResponse = _kind("RecallMessageResponse")
ReceiveMessageRequest = _kind("ReceiveMessageRequest")
ReceiveMessageResponse = _kind("ReceiveMessageResponse")
SendMessageRequest = _kind("SendMessageRequest")
SendMessageResponse = _kind("SendMessageResponse")
Settings = _kind("Settings")
SyncLiteSubscriptionRequest = _kind("SyncLiteSubscriptionRequest")
SyncLiteSubscriptionResponse = _kind("SyncLiteSubscriptionResponse")
TelemetryCommand = _kind("TelemetryCommand")
UpdateOffsetRequest = _kind("UpdateOffsetRequest")
UpdateOffsetResponse = _kind("UpdateOffsetResponse")

CODES = _numbers("Code")
MESSAGE_TYPES = _numbers("MessageType")
CLIENT_TYPES = _numbers("ClientType")
ENCODINGS = _numbers("Encoding")
PERMISSIONS = _numbers("Permission")
LOG_LEVELS = {
    item.number: item.name
    for item in _POOL.FindEnumTypeByName(f"{PACKAGE}.ChangeLogLevelRequest.Level").values
}


def _methods(service: str) -> frozenset[str]:
    return frozenset(
        method.name for method in _POOL.FindServiceByName(f"{PACKAGE}.{service}").methods
    )


SERVICE_METHODS = _methods("MessagingService")
ADMIN_METHODS = _methods("Admin")
