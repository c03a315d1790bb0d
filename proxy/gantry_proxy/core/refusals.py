"""Refusals, and the codes that stand for them.

Upstream: ``ResponseBuilder`` of the proxy. A broker's code that is not listed is the server's own
error, which every client tries again.
"""

from __future__ import annotations

from typing import Any

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError

from gantry_proxy.messages import CODES

OK = "OK"
OF_BROKERS = {
    ResponseCode.SYSTEM_BUSY: "TOO_MANY_REQUESTS",
    ResponseCode.FLOW_CONTROL: "TOO_MANY_REQUESTS",
    ResponseCode.POLLING_FULL: "TOO_MANY_REQUESTS",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "NOT_IMPLEMENTED",
    ResponseCode.FLUSH_DISK_TIMEOUT: "MASTER_PERSISTENCE_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "SLAVE_PERSISTENCE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "HA_NOT_AVAILABLE",
    ResponseCode.MESSAGE_ILLEGAL: "BAD_REQUEST",
    ResponseCode.INVALID_PARAMETER: "BAD_REQUEST",
    ResponseCode.ILLEGAL_OPERATION: "BAD_REQUEST",
    ResponseCode.NO_PERMISSION: "FORBIDDEN",
    ResponseCode.TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "CONSUMER_GROUP_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ILLEGAL_FILTER_EXPRESSION",
    ResponseCode.NO_MESSAGE: "INVALID_RECEIPT_HANDLE",
    ResponseCode.QUERY_NOT_FOUND: "OFFSET_NOT_FOUND",
    ResponseCode.LMQ_QUOTA_EXCEEDED: "LITE_TOPIC_QUOTA_EXCEEDED",
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
}
OWN_ERROR = "INTERNAL_SERVER_ERROR"


class CallRefused(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """A request that gets no answer but a status.

    Attributes:
        code: a name in ``CODES``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def of_broker(code: int, remark: str | None) -> CallRefused:
    """The refusal that a broker's answer other than 0 is to a client."""
    try:
        name = OF_BROKERS.get(ResponseCode(code), OWN_ERROR)
    except ValueError:
        name = OWN_ERROR
    return CallRefused(name, remark or f"the broker answers {code}")


def write(status: Any, code: str = OK, message: str = "") -> None:
    """Fill in a ``Status``."""
    status.code = CODES[code]
    status.message = message or code
