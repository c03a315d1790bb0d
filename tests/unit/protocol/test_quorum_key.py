"""The quorum's key: what its file may hold, and what proves that a side has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_protocol.errors import ConfigError
from gantry_protocol.quorum_key import (
    NO_KEY,
    NONCE_BYTES,
    KeyFile,
    Nonces,
    Purpose,
    Side,
    believed,
    demand_key,
    new_nonce,
    prove,
    read_keys,
    write_key,
)

KEY = b"0123456789abcdef"
OTHER = b"fedcba9876543210"
NONCES = Nonces(b"d" * NONCE_BYTES, b"l" * NONCE_BYTES, b"said")


def file_with(directory: Path, text: str) -> Path:
    file = directory / "key"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("0123456789abcdef", (KEY,)),
        ("  0123456789abcdef \n\n", (KEY,)),
        ("0123456789abcdef\nfedcba9876543210\n", (KEY, OTHER)),
    ],
    ids=["no newline", "stripped", "two while it is replaced"],
)
def test_keys_in_a_file(tmp_path: Path, text: str, keys: tuple[bytes, ...]) -> None:
    assert read_keys(file_with(tmp_path, text)) == keys


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("0123456789abcde", "too short"),
        ("0123456789abcdef\nshort", "too short"),
        ("0123456789abcdef\n" * 3, "more than 2 lines"),
        ("k" * 5000, "more than 2 lines"),
    ],
    ids=["empty", "blank", "short", "short second", "three", "endless"],
)
def test_a_file_that_holds_no_key_is_refused_in_one_sentence(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read_keys(file_with(tmp_path, text))
    assert "put one line of at least 16 characters there" in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="key cannot be read: No such file"):
        read_keys(tmp_path / "key")
    (tmp_path / "key").write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="it is no text"):
        read_keys(tmp_path / "key")


def test_a_process_without_a_key_must_be_told_that_it_may_run_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"GANTRY_QUORUM_KEY_FILE.*--allow-unauthenticated"):
        demand_key(None, allow_unauthenticated=False, process="broker")
    assert not demand_key(None, allow_unauthenticated=True, process="broker").is_set
    with pytest.raises(ConfigError, match="cannot be read"):
        demand_key(tmp_path / "none", allow_unauthenticated=True, process="broker")


def test_a_key_is_made_once_and_for_this_user_alone(tmp_path: Path) -> None:
    file = write_key(tmp_path / "keys" / "quorum")
    made = read_keys(file)
    assert file.stat().st_mode & 0o077 == 0
    assert read_keys(write_key(file)) == made


def test_the_file_is_read_each_time(tmp_path: Path) -> None:
    key = KeyFile(file_with(tmp_path, KEY.decode()))
    assert key.keys() == (KEY,)
    file_with(tmp_path, OTHER.decode())
    assert key.keys() == (OTHER,)
    assert NO_KEY.keys() == ()


def test_a_proof_of_any_of_the_keys_is_believed() -> None:
    shown = prove(OTHER, Purpose.RAFT, Side.DIALLER, NONCES)
    assert believed((KEY, OTHER), Purpose.RAFT, Side.DIALLER, NONCES, shown) == OTHER


@pytest.mark.parametrize(
    ("keys", "purpose", "side", "nonces", "shown"),
    [
        ((OTHER,), Purpose.RAFT, Side.DIALLER, NONCES, None),
        ((), Purpose.RAFT, Side.DIALLER, NONCES, None),
        ((KEY,), Purpose.STORE, Side.DIALLER, NONCES, None),
        ((KEY,), Purpose.RAFT, Side.LISTENER, NONCES, None),
        ((KEY,), Purpose.RAFT, Side.DIALLER, NONCES._replace(dialler=new_nonce()), None),
        ((KEY,), Purpose.RAFT, Side.DIALLER, NONCES._replace(listener=new_nonce()), None),
        ((KEY,), Purpose.RAFT, Side.DIALLER, Nonces(NONCES[1], NONCES[0], b"said"), None),
        ((KEY,), Purpose.RAFT, Side.DIALLER, NONCES._replace(context=b""), None),
        ((KEY,), Purpose.RAFT, Side.DIALLER, NONCES, b""),
        ((KEY,), Purpose.RAFT, Side.DIALLER, NONCES, NONCES.listener),
    ],
    ids=[
        "another key",
        "no key",
        "another purpose",
        "sent back to who made it",
        "another dialler's nonce",
        "another listener's nonce",
        "nonces swapped",
        "another hello",
        "nothing shown",
        "the challenge itself",
    ],
)
def test_a_proof_is_worth_nothing_elsewhere(
    keys: tuple[bytes, ...], purpose: Purpose, side: Side, nonces: Nonces, shown: bytes | None
) -> None:
    if shown is None:
        shown = prove(KEY, Purpose.RAFT, Side.DIALLER, NONCES)
    assert believed(keys, purpose, side, nonces, shown) is None


def test_a_nonce_of_another_length_is_none() -> None:
    nonces = NONCES._replace(listener=b"")
    shown = prove(KEY, Purpose.RAFT, Side.DIALLER, nonces)
    assert believed((KEY,), Purpose.RAFT, Side.DIALLER, nonces, shown) is None
