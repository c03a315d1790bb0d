"""`gantry tier` on a directory: what it lists, and that it names what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gantry_cli.commands.tier import tier
from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent


@pytest.fixture
def directory(tmp_path: Path) -> TierDirectory:
    """Three packs under two masters, and another group."""
    found = TierDirectory(tmp_path)
    found.claim(1)
    found.append(messages("orders", 12))
    found.append([*messages("orders", 6), None, *messages("billing", 4)])
    found.claim(2)
    found.append(messages("orders", 8))
    TierDirectory(tmp_path, uid="0other", group="payments").claim(7, start=50)
    return found


def run(*args: str) -> Result:
    return CliRunner().invoke(tier, args, catch_exceptions=True)


def test_groups_are_listed(directory: TierDirectory) -> None:
    rows = json.loads(run("ls", directory.url, "--json").stdout)
    found = sorted((row["group"], row["epoch"], row["start"], row["packs"]) for row in rows)
    assert found == [("orders", 2, 0, 3), ("payments", 7, 50, 0)]
    assert [row["faults"] for row in rows] == [0, 0]
    assert "payments" in run("ls", directory.url).stdout


def test_a_group_with_a_fault_is_listed_as_far_as_it_is_sound(directory: TierDirectory) -> None:
    directory.flip("man/00000000000000000003", 40)
    directory.path("meta.json").unlink()
    (row,) = (row for row in json.loads(run("ls", directory.url, "--json").stdout) if row["faults"])
    assert (row["group"], row["shard"], row["version"], row["faults"]) == ("", "7c9e6679", 2, 2)


def test_show_names_what_is_wrong_with_a_chain(directory: TierDirectory) -> None:
    directory.flip("man/00000000000000000003", 40)
    result = run("show", directory.url, "--group", "orders")
    assert result.exit_code == 1
    assert f"fault T4: {directory.place.key('man/00000000000000000003')} byte " in result.stdout
    found = json.loads(run("show", directory.url, "--group", "orders", "--json").stdout)
    assert [claim["epoch"] for claim in found["claims"]] == [1]
    (pack,) = found["state"]["packs"]
    first = directory.state.packs[0]
    assert pack["key"] == directory.place.key(first.key)
    assert (pack["from"], pack["to"], pack["records"], pack["version"]) == (0, first.hi, 12, 2)
    assert found["findings"][0]["rule"] == "T4"


def test_a_chain_is_shown_with_its_masters(directory: TierDirectory) -> None:
    text = run("show", directory.url, "--group", "orders").stdout
    assert f"orders: [0, {directory.state.end}) in version 5" in text
    assert "orders-broker-1" in text
    assert "orders-broker-2" in text
    for entry in directory.state.packs:
        assert entry.key in text


def test_a_tier_that_was_taken_over_is_sound_and_says_by_whom(directory: TierDirectory) -> None:
    assert "taken over" not in run("show", directory.url, "--group", "orders").stdout
    directory.take("new")
    directory.append(messages("orders", 5))
    text = run("show", directory.url, "--group", "orders").stdout
    assert "in version 8, taken over by group new" in text
    assert run("verify", directory.url, "--group", "orders").exit_code == 0


def test_a_group_must_be_named_where_there_are_several(directory: TierDirectory) -> None:
    result = run("show", directory.url)
    assert isinstance(result.exception, GantryError)
    assert "name one of: orders (7c9e6679), payments (0other)" in str(result.exception)


def test_a_sound_tier_is_sound(directory: TierDirectory) -> None:
    result = run("verify", directory.url)
    assert result.exit_code == 0
    assert "orders: sound; " in result.stdout
    assert "30 records" in result.stdout


@pytest.mark.parametrize("at", [0, 4, 100, -1, -9, -200])
def test_a_flipped_bit_is_named(directory: TierDirectory, at: int) -> None:
    name = directory.state.packs[1].key
    directory.flip(name, at)
    result = run("verify", directory.url, "--json")
    assert result.exit_code == 1
    verdicts = {
        found["group"]: found["verdict"] for found in map(json.loads, result.stdout.splitlines())
    }
    assert verdicts["payments"]["findings"] == []
    (finding,) = verdicts["orders"]["findings"]
    assert finding["object"] == directory.place.key(name)
    assert finding["reason"]


def test_what_is_missing_or_foreign_is_named(directory: TierDirectory) -> None:
    first, second, third = (entry.key for entry in directory.state.packs)
    directory.path(first).unlink()
    directory.path(third).write_bytes(directory.path(second).read_bytes())
    result = run("verify", directory.url, "--group", "orders")
    assert result.exit_code == 1
    assert f"fault T4: {directory.place.key(first)} offset 0: it is missing" in result.stdout
    assert directory.place.key(third) in result.stdout
    assert directory.place.key(second) not in result.stdout


def test_a_broken_chain_is_named_with_its_version(directory: TierDirectory) -> None:
    directory.flip("man/00000000000000000003", 40)
    result = run("verify", directory.url, "--group", "orders")
    assert result.exit_code == 1
    assert "man/00000000000000000003" in result.stdout


def test_what_no_version_names_is_told_and_no_fault(directory: TierDirectory) -> None:
    pack = directory.build(messages("orders", 3))
    directory.put(str(pack.key), pack.data)
    result = run("verify", directory.url, "--group", "orders")
    assert result.exit_code == 0
    key, lo = directory.place.key(str(pack.key)), pack.key.lo
    assert f"note orphan: {key} offset {lo}: no version names it (yet)" in result.stdout


def test_an_empty_store_is_an_error(tmp_path: Path) -> None:
    result = run("verify", tmp_path.as_uri())
    assert isinstance(result.exception, GantryError)
    assert "holds no group's tier" in str(result.exception)


def test_a_brokers_settings_are_enough(directory: TierDirectory, tmp_path: Path) -> None:
    result = CliRunner().invoke(tier, ["verify"], env={"GANTRY_TIER_URL": directory.url})
    assert result.exit_code == 0
    assert "orders: sound; " in result.stdout
    keys = tmp_path / "keys"
    keys.mkdir()
    bucket = {
        "GANTRY_TIER_URL": "s3://bucket/mq",
        "GANTRY_TIER_ENDPOINT": "http://127.0.0.1:1",
        "GANTRY_TIER_CREDENTIALS_DIR": str(keys),
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    result = CliRunner().invoke(tier, ["verify"], env=bucket)
    assert isinstance(result.exception, GantryError)
    assert f"{keys}/accessKeyId is missing or empty" in str(result.exception)
    for name in ("accessKeyId", "secretAccessKey"):
        (keys / name).write_text("key")
    result = CliRunner().invoke(tier, ["verify"], env=bucket)
    assert isinstance(result.exception, GantryError)
    assert result.exception.exit_code == EXIT_TEMPORARY  # nobody listens there
    assert "s3://bucket/mq" in str(result.exception)


# ---- find


@pytest.fixture
def keyed(tmp_path: Path) -> TierDirectory:
    """Three packs; a message with the key k7 in the first and in the last, one of another topic."""
    found = TierDirectory(tmp_path)
    found.claim(1)
    found.append([Sent("orders", 1, b"old", "red", keys="k7 all"), *messages("orders", 4)])
    found.append([Sent("billing", 0, b"bill", keys="k7"), Sent("orders", 0, b"x", keys="k77 all")])
    found.append([*messages("orders", 2), Sent("orders", 1, b"newest", keys="k7")])
    return found


def test_messages_are_found_by_key_the_newest_first(keyed: TierDirectory) -> None:
    result = run("find", "k7", keyed.url, "--topic", "orders", "--json")
    assert result.exit_code == 0
    hits = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["queue"], one["offset"], one["bytes"]) for one in hits] == [(1, 4, 6), (1, 0, 3)]
    assert [one["keys"] for one in hits] == [["k7"], ["k7", "all"]]
    assert hits[1]["pack"] == keyed.place.key(keyed.state.packs[0].key)
    lines = run("find", "all", keyed.url, "--topic", "orders", "--limit", "1").stdout.splitlines()
    assert len(lines) == 1
    assert "orders queue 0 offset" in lines[0]


def test_a_key_that_nobody_has_is_said(keyed: TierDirectory) -> None:
    result = run("find", "k", keyed.url, "--topic", "orders")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No message of orders in the tier of orders has the key k." in result.stderr


def test_a_search_names_what_it_could_not_read(keyed: TierDirectory) -> None:
    lost = keyed.path(keyed.state.packs[2].key)
    lost.unlink()
    result = run("find", "k7", keyed.url, "--topic", "orders", "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0]
    assert f"{lost.name} is missing" in result.stderr
    assert "has the key" not in result.stderr, "nobody knows"
