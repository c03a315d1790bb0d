"""Wrong manifests: refused by the real API server, and by ours for the same fields and reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support import template_cases, wrong_specs
from support.cli_cluster import ROOT, CliCluster
from support.contract_api import ContractApi, Refused
from support.pretend_cluster import PretendCluster

GROUPS = "/apis/mq.gantry.dev/v1alpha1/namespaces/default/brokergroups/wrong"
SPECS: dict[str, dict[str, Any]] = {
    **{name: spec for name, (spec, _) in wrong_specs.REFUSED.items()},
    **{
        f"template: {why}": {"template": {"spec": template}}
        for why, template in template_cases.REFUSED
    },
    **{
        f"edge {number}": {"template": {"spec": template}}
        for number, template in enumerate([template_cases.FULL, *template_cases.EDGES])
    },
}
Verdict: TypeAlias = tuple[int, str, tuple[tuple[str, str], ...]]


async def ask(api: ContractApi, spec: dict[str, Any]) -> None:
    """Have a BrokerGroup judged, and not written."""
    head = {"apiVersion": "mq.gantry.dev/v1alpha1", "kind": "BrokerGroup"}
    body = {**head, "metadata": {"name": "wrong"}, "spec": spec}
    kind = "application/apply-patch+yaml"
    query = {"fieldManager": "one", "fieldValidation": "Strict", "dryRun": "All"}
    await api.call("PATCH", GROUPS, body, kind=kind, **query)


def _plain(message: str) -> str:
    """Without the word for a value that is a whole object, which servers of 1.37 leave out."""
    return message.replace('Invalid value: "object": ', "Invalid value: ", 1)


async def verdict(api: ContractApi, spec: dict[str, Any]) -> Verdict:
    """The server's word: code, reason, and the causes with their fields."""
    try:
        await ask(api, spec)
    except Refused as refused:
        causes = (refused.status.get("details") or {}).get("causes") or []
        found = sorted((one.get("field", ""), _plain(one.get("message", ""))) for one in causes)
        return refused.code, refused.reason, tuple(found)
    return 200, "", ()


async def test_what_is_wrong_is_refused_by_both(real: CliCluster, tmp_path: Path) -> None:
    async with (
        PretendCluster() as pretend,
        ContractApi(pretend.write_kubeconfig(tmp_path / "kubeconfig")) as ours,
        ContractApi(real.directory / "kubeconfig") as theirs,
    ):
        pretend.load(ROOT / "crds")
        verdicts = {
            name: (await verdict(ours, spec), await verdict(theirs, spec))
            for name, spec in SPECS.items()
        }
    different = {name: both for name, both in verdicts.items() if both[0] != both[1]}
    assert different == {}
    taken = {name for name, (_, real_word) in verdicts.items() if real_word[0] == 200}
    assert taken == {name for name in SPECS if name.startswith("edge ")}


@pytest.mark.parametrize("case", wrong_specs.REFUSED)
async def test_the_refusal_says_what_is_wrong(real: CliCluster, case: str) -> None:
    spec, words = wrong_specs.REFUSED[case]
    async with ContractApi(real.directory / "kubeconfig") as api:
        with pytest.raises(Refused) as refused:
            await ask(api, spec)
    assert words in refused.value.message
