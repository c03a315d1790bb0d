"""The service ``apache.rocketmq.v2.Admin``, as it is published: ChangeLogLevel.

Its answer has no status, so a refusal is gRPC's own: ``PERMISSION_DENIED``. A super user may, and
nobody where clients are not judged: everybody who reaches the port could hide what he does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.process import log
from gantry_protocol.remoting.admission import BEHALF_FIELD
from google.protobuf.message import DecodeError

from gantry_proxy.access import DENIED
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.messages import LOG_LEVELS, ChangeLogLevelRequest, ChangeLogLevelResponse
from gantry_proxy.rpc import CallAborted, Methods

if TYPE_CHECKING:
    from gantry_proxy.access import CallGate
    from gantry_proxy.rpc import Call

NAME = "apache.rocketmq.v2.Admin"
CHANGE_LOG_LEVEL = "ChangeLogLevel"
NOT_JUDGED = "a super user changes the log level, and this proxy judges nobody now"
_OURS = {"TRACE": "debug", "WARN": "warning"}
"""Levels that are called otherwise here; there is nothing below ``debug``."""

_log = log.get("admin")


class AdminService:
    """See the module.

    Args:
        gate: judges who calls.
    """

    def __init__(self, gate: CallGate) -> None:
        self._gate = gate

    def methods(self) -> Methods:
        """The methods of the service."""
        return Methods(NAME, {CHANGE_LOG_LEVEL: self.change_log_level}, {}, {})

    async def change_log_level(self, data: bytes, call: Call) -> bytes:
        """ChangeLogLevel: this process logs at that level from now on, until it ends.

        Raises:
            CallAborted: the user may not, or there is no such level.
        """
        try:
            wanted = ChangeLogLevelRequest.FromString(data)
            self._gate.admit(CHANGE_LOG_LEVEL, wanted, call)
        except DecodeError as error:
            text = f"the request does not read: {error}"
            raise CallAborted("INVALID_ARGUMENT", text) from error
        except CallRefused as refused:
            code = "PERMISSION_DENIED" if refused.code == DENIED else "UNAVAILABLE"
            raise CallAborted(code, str(refused)) from refused
        user = call.behalf.get(BEHALF_FIELD)
        if user is None:
            raise CallAborted("PERMISSION_DENIED", NOT_JUDGED)
        name = LOG_LEVELS.get(wanted.level)
        if name is None:
            raise CallAborted("INVALID_ARGUMENT", f"there is no log level {wanted.level}")
        level, before = _OURS.get(name, name.lower()), log.level()
        log.set_level("info")  # a change is always told
        _log.info("log level changed", user=user, before=before, now=level)
        log.set_level(level)
        made = ChangeLogLevelResponse(remark=f"logs at {level}; before at {before}")
        encoded: bytes = made.SerializeToString()
        return encoded
