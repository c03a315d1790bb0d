"""What `kubectl explain` reads: every kind by its path, every field by its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gantry_local import manifests
from gantry_local.client import ApiError, Client
from support.pretend_cluster import PretendCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GROUP = "mq.gantry.dev/v1alpha1"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Client]:
    async with PretendCluster() as cluster:
        client = Client.from_kubeconfig(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        async with client:
            for crd in manifests.crds():
                await client.apply(crd)
            yield client


def explain(document: dict[str, Any], path: str, *fields: str) -> dict[str, Any]:
    """As kubectl does: the kind by its path, then field by field through references."""
    schemas = document["components"]["schemas"]
    kind = document["paths"][path]["get"]["x-kubernetes-group-version-kind"]
    named = [s for s in schemas.values() if kind in s.get("x-kubernetes-group-version-kind", ())]
    (node,) = named
    for field in fields:
        node = _resolved(schemas, _resolved(schemas, node)["properties"][field])
        node = _resolved(schemas, node.get("items", node))
    found: dict[str, Any] = _resolved(schemas, node)
    return found


def _resolved(schemas: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    references = [node, *node.get("allOf", ())]
    for reference in references:
        if "$ref" in reference:
            name = reference["$ref"].removeprefix("#/components/schemas/")
            return {
                **schemas[name],
                **{k: v for k, v in node.items() if k not in ("allOf", "$ref")},
            }
    return node


async def test_every_kind_is_explained(api: Client) -> None:
    index = (await api.request("GET", "/openapi/v3"))["paths"]
    documents = {
        name: await api.request("GET", entry["serverRelativeURL"]) for name, entry in index.items()
    }
    for resource in await api.resources():
        where = f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"
        middle = "/namespaces/{namespace}" if resource.namespaced else ""
        path = f"/{where}{middle}/{resource.plural}"
        found = explain(documents[where], path)
        assert found["type"] == "object", resource.qualified
        assert "name" in explain(documents[where], path, "metadata")["properties"]
    for document in documents.values():
        assert not list(_dangling(document["components"]["schemas"], document))


def _dangling(schemas: dict[str, Any], node: Any) -> Any:
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            if value.removeprefix("#/components/schemas/") not in schemas:
                yield value
        else:
            yield from _dangling(schemas, value)


async def test_a_broker_group_is_explained_in_the_words_of_its_definition(api: Client) -> None:
    document = await api.request("GET", f"/openapi/v3/apis/{GROUP}")
    path = f"/apis/{GROUP}/namespaces/{{namespace}}/brokergroups"
    (crd,) = (c for c in manifests.crds() if c["spec"]["names"]["kind"] == "BrokerGroup")
    declared = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert explain(document, path, "spec")["properties"] == declared["properties"]
    pods = await api.request("GET", "/openapi/v3/api/v1")
    container = explain(pods, "/api/v1/namespaces/{namespace}/pods", "spec", "containers")
    assert container["properties"]["image"] == {"type": "string"}


async def test_what_is_not_served_is_not_found(api: Client) -> None:
    with pytest.raises(ApiError) as refused:
        await api.request("GET", "/openapi/v3/apis/nobody.example/v1")
    assert refused.value.code == 404


async def test_a_patch_takes_field_validation(api: Client) -> None:
    document = await api.request("GET", f"/openapi/v3/apis/{GROUP}")
    patch = document["paths"][f"/apis/{GROUP}/namespaces/{{namespace}}/brokergroups/{{name}}"]
    assert "fieldValidation" in [one["name"] for one in patch["patch"]["parameters"]]
