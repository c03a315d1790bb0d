"""``RemotingCommand``: one request or response, whatever its bytes look like.

The same value travels in both header codecs. Replies are matched by ``opaque`` only and may come in
any order; a oneway request is never answered. This module knows no bytes; ``gantry_protocol.frame``
does.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated

import msgspec

from gantry_protocol.codes import ResponseCode

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SerializeType(IntEnum):
    """The header codec of one frame; the sender alone chooses, so readers look at every frame."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct):
    """One request or response.

    Attributes:
        code: request code, or response code in a response.
        opaque: any int32; given by the client, copied by the server.
        flag: bit 0 response, bit 1 oneway; other bits are ignored.
        language: upstream's ``LanguageCode`` name of the sender; informational.
        version: the sender's ``MQVersion`` ordinal; informational, except that some replies differ
            by it.
        remark: text for people; no program may parse it.
        ext: the custom header, strings only; None when there is none.
        serialize_type: the codec the frame had, or will have.
    """

    code: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str = "PYTHON"
    version: Int32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)


def request(
    code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """A request; the client that sends it sets ``opaque``."""
    return RemotingCommand(
        code=int(code),
        flag=FLAG_ONEWAY if oneway else 0,
        ext=None if ext is None else dict(ext),
        body=body,
    )


def reply(
    to: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """The answer to ``to``, with a JSON header: every client reads it, and C++ reads no other."""
    return RemotingCommand(
        code=int(code), opaque=to.opaque, flag=FLAG_RESPONSE, remark=remark, ext=ext, body=body
    )
