"""The audit and `gantry tier verify` on the same damaged tiers: the same findings and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner
from gantry_cli.commands.tier import tier
from gantry_pipeline.jobs.audit import audit
from gantry_pipeline.source.tier import Wanted
from gantry_protocol.tier.findings import Finding, sort_key
from support.damaged_tiers import DAMAGES, Planted, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_verify(planted: Planted) -> list[Finding]:
    confirm = [] if planted.confirm is None else ["--confirm", str(planted.confirm)]
    uid = planted.tier.place.uid
    result = CliRunner().invoke(
        tier, ["verify", planted.tier.url, "--group", uid, "--json", *confirm]
    )
    verdict = json.loads(result.stdout)["verdict"]
    return [Finding(**row) for row in (*verdict["findings"], *verdict["notes"])]


def test_every_damage_is_named_alike(spark: SparkSession, tier_path: Path) -> None:
    """All tiers lie in one bucket, so that one audit judges them."""
    planted = {damage.name: plant(damage, tier_path) for damage in DAMAGES}
    confirmed = {name: one.confirm for name, one in planted.items() if one.confirm is not None}
    account = audit(spark, Wanted(tier_path.as_uri()), confirmed=confirmed, say=lambda _: None)
    for name, one in planted.items():
        audited = [
            found for found in account.findings if found.object.startswith(one.tier.place.prefix)
        ]
        assert sorted(audited, key=sort_key) == sorted(by_verify(one), key=sort_key), name
    assert sum(len(one.expected) for one in planted.values()) == len(account.findings)


def test_a_stray_folder_is_named_alike(spark: SparkSession, tier_path: Path) -> None:
    found = plant(DAMAGES[0], tier_path)
    stray = tier_path / "demo" / "0000" / found.tier.place.uid / "meta.json"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"{}")
    account = audit(spark, Wanted(tier_path.as_uri()), say=lambda _: None)
    result = CliRunner().invoke(tier, ["verify", found.tier.url, "--json"])
    assert result.exit_code == 1
    told = Finding(**json.loads(result.stdout.splitlines()[0])["stray"])
    assert [told] == account.findings
