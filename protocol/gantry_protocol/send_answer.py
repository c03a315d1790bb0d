"""The answer to a send that was stored, made from a template.

A broker answers nothing else as often, and everything in the answer is known beforehand but five
values. The frame is byte for byte what ``frame.encode`` makes of the same reply (a property test
compares them); a unique key that JSON would have to escape goes the general way.
"""

from collections.abc import Sequence

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import FLAG_RESPONSE, RemotingCommand
from gantry_protocol.frame import encode, json_frame
from gantry_protocol.records import offset_msg_id, offset_msg_ids

# In a refusal of a send: the record may be in the log all the same. A client that sends it again,
# as RocketMQ's do after the code that stands with it, may store it twice.
MAY_BE_STORED = "MAY_BE_STORED"
OFFSETS_MAX = 65_536  # 33 bytes each: their frame stays far below the largest


class SendAnswers:
    """Makes the answers of one broker.

    Args:
        host, port: where a record can be asked for by its offset id.
        added: fields that every answer has, behind where the message stands; text that JSON takes
            as it is.
    """

    def __init__(self, host: str, port: int, added: dict[str, str]) -> None:
        self._host, self._port = host, port
        self._id_start = offset_msg_id(host, port, 0)[:-16].encode()
        self._added = added
        more = "".join(f',"{name}":"{value}"' for name, value in added.items())
        start = (
            f'{{"code":{int(ResponseCode.SUCCESS)},"extFields":{{"msgId":"%b","queueId":"%d"'
            f',"queueOffset":"%d"{more}'
        )
        end = (
            f'}},"flag":{FLAG_RESPONSE},"language":"{RemotingCommand().language}","opaque":%d'
            ',"serializeTypeCurrentRPC":"JSON","version":0}'
        )
        self._keyless = (start + end).encode()
        self._keyed = (start + ',"transactionId":"%b"' + end).encode()

    def frame(
        self,
        opaque: int,
        offsets: Sequence[int],
        queue_id: int,
        queue_offset: int,
        unique_key: str | None,
    ) -> bytes:
        """The frame of an answer 0.

        Args:
            opaque: of the request.
            offsets: where the records stand in the log; 1 to ``OFFSETS_MAX``.
            queue_id: as the producer is to see it.
            queue_offset: of the first record.
            unique_key: of the message, if it has one.
        """
        assert 0 < len(offsets) <= OFFSETS_MAX, f"an answer for {len(offsets)} records"
        if len(offsets) == 1:
            ids = b"%b%016X" % (self._id_start, offsets[0])
        else:
            ids = offset_msg_ids(self._host, self._port, offsets).encode()
        if unique_key is None:
            return json_frame(self._keyless % (ids, queue_id, queue_offset, opaque))
        if unique_key.isalnum() and unique_key.isascii():
            return json_frame(
                self._keyed % (ids, queue_id, queue_offset, unique_key.encode(), opaque)
            )
        ext = {
            "msgId": ids.decode(),
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            **self._added,
            "transactionId": unique_key,
        }
        return encode(RemotingCommand(opaque=opaque, flag=FLAG_RESPONSE, ext=ext))
