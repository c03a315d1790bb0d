"""The compressed form of a broker's registration (103).

Upstream: ``RegisterBrokerBody.encode``. zlib of: size and JSON of the data version · number of
topics · per topic its size and ``name read write perm filterType {attributes}`` · size and JSON of
the filter servers · from 5.0 on static topics, which are not read. Inflating is bounded.
"""

import struct
import zlib

import msgspec

from gantry_protocol.bodies.codec import decode_body, encode_body
from gantry_protocol.bodies.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from gantry_protocol.errors import BodyError

MAX_INFLATED_BYTES = 64 * 1024 * 1024

_INT32 = struct.Struct(">i")
_attributes = msgspec.json.Decoder(dict[str, str])


def decode_registration(data: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """A registration in either form; an empty body is an empty registration.

    Raises:
        BodyError: it is neither.
    """
    if not data:
        return RegisterBrokerBody()
    if not compressed:
        return decode_body(RegisterBrokerBody, data)
    inflater = zlib.decompressobj()
    try:
        reader = _Reader(inflater.decompress(data, MAX_INFLATED_BYTES))
    except zlib.error as error:
        raise BodyError(f"The registration is not compressed by zlib: {error}.") from error
    if inflater.unconsumed_tail:
        raise BodyError(f"The registration inflates to more than {MAX_INFLATED_BYTES} bytes.")
    version = decode_body(DataVersion, reader.sized())
    topics = [_decode_topic(reader.sized()) for _ in range(reader.count())]
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={topic.topic_name: topic for topic in topics}, data_version=version
    )
    filter_servers = decode_body(list[str], reader.sized())
    return RegisterBrokerBody(wrapper, filter_servers)


def encode_registration(body: RegisterBrokerBody) -> bytes:
    """The compressed form, as a broker before 5.0 sends it."""
    wrapper = body.topic_config_serialize_wrapper
    topics = list(wrapper.topic_config_table.values())
    parts = [
        _sized(encode_body(wrapper.data_version)),
        _INT32.pack(len(topics)),
        *(_sized(_encode_topic(topic)) for topic in topics),
        _sized(encode_body(body.filter_server_list)),
    ]
    return zlib.compress(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _encode_topic(topic: TopicConfig) -> bytes:
    attributes = encode_body(topic.attributes).decode()
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} {attributes}"
    ).encode()


def _decode_topic(data: bytes) -> TopicConfig:
    words = data.decode("utf-8", "replace").split(" ", 5)
    try:
        return TopicConfig(
            topic_name=words[0],
            read_queue_nums=int(words[1]),
            write_queue_nums=int(words[2]),
            perm=int(words[3]),
            topic_filter_type=words[4],
            attributes=_attributes.decode(words[5]) if words[5:] else {},
        )
    except (ValueError, IndexError) as error:  # msgspec's errors are ValueErrors
        raise BodyError(f"The registration has the malformed topic {words[0][:64]!r}.") from error


class _Reader:
    """Sized pieces, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        try:
            (value,) = _INT32.unpack_from(self._data, self._position)
        except struct.error as error:
            raise BodyError("The registration is cut short.") from error
        self._position += _INT32.size
        if not 0 <= value <= len(self._data):
            raise BodyError(f"The registration claims {value} of something.")
        return int(value)

    def sized(self) -> bytes:
        size = self.count()
        start, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise BodyError("The registration is cut short.")
        return self._data[start : self._position]
