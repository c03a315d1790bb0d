"""The JSON header as other people's clients write it."""

import pytest
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import decode_json_header, encode_json_header

READ = {
    "nothing": (b"{}", RemotingCommand(language="PYTHON")),
    "blanks": (b' {\n "code" : 34 }\n', RemotingCommand(code=34, language="PYTHON")),
    "unknown keys": (b'{"code":1,"zone":{"a":[1]}}', RemotingCommand(code=1)),
    "null members": (
        b'{"code":1,"extFields":null,"remark":null,"language":null,"opaque":null}',
        RemotingCommand(code=1, language="OTHER"),
    ),
    "unknown language": (b'{"language":"COBOL"}', RemotingCommand(language="COBOL")),
    "language as number": (b'{"language":3}', RemotingCommand(language="OTHER")),
    "numbers as strings": (b'{"code":"105","opaque":"-7"}', RemotingCommand(code=105, opaque=-7)),
    "negative opaque": (b'{"opaque":-2147483648}', RemotingCommand(opaque=-(2**31))),
    "empty ext": (b'{"extFields":{}}', RemotingCommand(ext={})),
    "null in ext": (b'{"extFields":{"a":null,"b":"x"}}', RemotingCommand(ext={"b": "x"})),
    "scalars in ext": (
        b'{"extFields":{"i":7,"t":true,"f":false,"d":1.5,"s":"x"}}',
        RemotingCommand(ext={"i": "7", "t": "true", "f": "false", "d": "1.5", "s": "x"}),
    ),
    "object in ext": (b'{"extFields":{"o":{"a":1}}}', RemotingCommand(ext={"o": '{"a":1}'})),
    "remark as number": (b'{"remark":5}', RemotingCommand(remark="5")),
    "body key is no body": (b'{"code":1,"body":5}', RemotingCommand(code=1)),
}


@pytest.mark.parametrize(("data", "command"), READ.values(), ids=READ)
def test_lenient_headers_are_read(data: bytes, command: RemotingCommand) -> None:
    got = decode_json_header(data)
    if b"language" not in data:
        assert got.language in ("PYTHON", "OTHER")
        got.language = command.language
    assert got == command


@pytest.mark.parametrize(
    "data",
    [
        b'{"code":1.5}',
        b'{"code":"x"}',
        b'{"code":"99999999999"}',
        b'{"code":true}',
        b'{"opaque":[]}',
    ],
)
def test_a_member_that_is_no_int32_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match=r"no int32 in '(code|opaque)'"):
        decode_json_header(data)


def test_absent_members_are_left_out() -> None:
    assert encode_json_header(RemotingCommand(code=3)) == (
        b'{"code":3,"flag":0,"language":"PYTHON","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":0}'
    )
