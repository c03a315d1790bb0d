"""A broker's bounds of each kind of request: its size, and how long it may have waited.

Ages are upstream's fast failure in shape, and longer: its 200 ms for a send would refuse what a
burst holds up and a client still waits for. What keeps somebody known, and what the controllers
say, is never too old.
"""

from gantry_protocol.codes import RequestCode
from gantry_protocol.records.layout import MAX_RECORD_BYTES
from gantry_protocol.remoting.rules import RequestRule, RequestRules

OTHERS = RequestRule(1024 * 1024, 5.0)  # bodies are lists of names; clients give at least so long
_SEND = RequestRule(MAX_RECORD_BYTES, 2.0)  # Java gives one 3 s; a batch is one message by its size
_NEVER_LATE = RequestRule(1024 * 1024)  # a heartbeat of thousands of subscriptions

CLIENT_RULES = RequestRules(
    {
        RequestCode.SEND_MESSAGE: _SEND,
        RequestCode.SEND_MESSAGE_V2: _SEND,
        RequestCode.SEND_BATCH_MESSAGE: _SEND,
        RequestCode.SEND_REPLY_MESSAGE: _SEND,
        RequestCode.SEND_REPLY_MESSAGE_V2: _SEND,
        RequestCode.HEART_BEAT: _NEVER_LATE,
        RequestCode.UNREGISTER_CLIENT: _NEVER_LATE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _NEVER_LATE,
        RequestCode.GANTRY_CONSUMERS_CHANGED: _NEVER_LATE,
    },
    OTHERS,
)
