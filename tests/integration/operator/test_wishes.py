"""The local API server refuses, and shows, what the end-to-end run holds a real one to."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.errors import StatusError
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP
from gantry_operator.models import generate
from harness import client, wishes
from integration.operator.operator_world import World

KINDS = {kind.kind: kind for kind in (BROKER_GROUP, CONTROLLER_GROUP)}
DRY = Options(manager="somebody", dry_run=True, field_validation="Strict")


@pytest.mark.parametrize(("wish", "sentence"), wishes.REFUSED)
async def test_it_is_refused_with_what_to_do(
    world: World, wish: dict[str, Any], sentence: str
) -> None:
    registry = world.cluster.registry
    kind = KINDS[wish["kind"]]
    resource = registry.catalogue.type(kind.group, kind.plural)
    with pytest.raises(StatusError) as refused:
        registry.create(resource, world.namespace, wish, DRY)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("kind", "change", "sentence"), wishes.FIXED)
async def test_what_is_fixed_cannot_be_changed(
    world: World, kind: str, change: dict[str, Any], sentence: str
) -> None:
    world.example("controllergroup.yaml")
    world.example("brokergroup.yaml")
    changed, name = {
        "brokergroup": (BROKER_GROUP, wishes.GROUP),
        "controllergroup": (CONTROLLER_GROUP, client.CONTROLLERS),
    }[kind]
    with pytest.raises(StatusError) as refused:
        world.patch(changed, name, {"spec": change})
    assert sentence in str(refused.value)


def test_what_is_shown_in_a_line() -> None:
    crds = {crd["spec"]["names"]["kind"]: crd for crd in generate.manifests().values()}
    (version,) = crds["BrokerGroup"]["spec"]["versions"]
    shown = [
        column["name"].upper()
        for column in version["additionalPrinterColumns"]
        if not column.get("priority")
    ]
    assert ["NAME", *shown] == [*wishes.COLUMNS, "AGE"]
