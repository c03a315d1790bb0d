"""Every damage of the table: `gantry tier verify` and the checker of experiments find just that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from gantry_chaos.checkers import tier as checker
from gantry_cli.commands.tier import tier
from gantry_protocol.tier.damage import TierObjectError
from gantry_protocol.tier.findings import Finding, sort_key
from gantry_protocol.tier.keys import ManKey, parse_key
from gantry_protocol.tier.manifests import Version, decode_version
from support.damaged_tiers import DAMAGES, Damage, Expected, Planted, plant


def bare(planted: Planted, finding: Finding) -> Expected:
    name = finding.object.removeprefix(planted.tier.place.prefix)
    return Expected(finding.rule, name, finding.byte, finding.offset, finding.grade)


def by_verify(planted: Planted) -> list[Finding]:
    confirm = [] if planted.confirm is None else ["--confirm", str(planted.confirm)]
    uid = planted.tier.place.uid
    result = CliRunner().invoke(
        tier, ["verify", planted.tier.url, "--group", uid, "--json", *confirm]
    )
    verdict = json.loads(result.stdout)["verdict"]
    assert result.exit_code == (1 if verdict["findings"] else 0)
    return [Finding(**row) for row in (*verdict["findings"], *verdict["notes"])]


def by_checker(planted: Planted) -> list[Finding]:
    place, root = planted.tier.place, planted.tier.root
    keys = sorted(
        str(path.relative_to(root)) for path in (root / place.prefix).rglob("*") if path.is_file()
    )

    def get(key: str) -> bytes | None:
        return (root / key).read_bytes() if key in keys else None

    versions: list[Version | TierObjectError] = []
    for key in keys:
        try:
            name = parse_key(place, key)
            if isinstance(name, ManKey):
                versions.append(decode_version(get(key) or b"", place, name.v))
        except TierObjectError as error:
            if key.startswith(place.key("man/")):
                versions.append(error)
    confirm = 2**62 if planted.confirm is None else planted.confirm
    judged = checker.judge(place, versions, keys, get, checker.Truth(confirm, ()))
    return judged.findings


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_named_by_object_and_place(damage: Damage, tmp_path: Path) -> None:
    planted = plant(damage, tmp_path / "bucket")
    verified = by_verify(planted)
    assert sorted(bare(planted, one) for one in verified) == sorted(planted.expected)
    assert sorted(by_checker(planted), key=sort_key) == sorted(verified, key=sort_key)
