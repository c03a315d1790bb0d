"""The handle by which a message that waits for its moment is taken back.

Upstream: ``RecallMessageHandle.HandleV1``. Its text is Base64 for URLs of five words with a space
between two: ``v1``, the topic, the broker's name, when the message is due, its unique key.
"""

import base64
import binascii

import msgspec

from gantry_protocol.errors import HeaderError

_VERSION = "v1"
MAX_BYTES = 1024


class RecallHandle(msgspec.Struct, frozen=True):
    """One handle, taken apart.

    Attributes:
        topic: of the message.
        broker_name: of the broker group that has it.
        due_ms: when it is delivered, ms since 1970.
        unique_key: of the message.
    """

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str

    def pack(self) -> str:
        """The text that clients are given."""
        words = (_VERSION, self.topic, self.broker_name, str(self.due_ms), self.unique_key)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def unpack(cls, text: str) -> "RecallHandle":
        """Read what a client names.

        Raises:
            HeaderError: nobody has made it.
        """
        try:
            if len(text) > MAX_BYTES:
                raise ValueError("too long")
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
            version, topic, broker_name, due, unique_key = raw.decode().split(" ")
            if version != _VERSION or not (due.isascii() and due.isdigit() and len(due) < 16):
                raise ValueError(version)
        except (ValueError, binascii.Error) as error:
            raise HeaderError("recall failed, invalid handle") from error
        return cls(topic, broker_name, int(due), unique_key)
