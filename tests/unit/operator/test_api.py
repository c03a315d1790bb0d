"""The verbs over HTTP: what is sent, and what each answer means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from gantry_operator.api import kube
from gantry_operator.api.credentials import Credentials
from gantry_operator.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Denied,
    Ending,
    Gone,
    Invalid,
    NotFound,
    OldDefinitionsError,
    TooManyRequests,
    Unavailable,
    Undeclared,
)
from gantry_operator.api.kinds import BROKER_GROUP, LEASE, POD, SERVICE, STATEFULSET, Kind
from gantry_operator.api.kube import KubeApi
from gantry_protocol.errors import ConfigError
from support.freezes import cancelled_after_a_freeze

Reply = Callable[[web.Request, bytes], web.Response]


class Server:
    """Answers every request by the next reply, the last one for ever, and remembers what came."""

    def __init__(self) -> None:
        self.replies: list[Reply] = [lambda _r, _b: web.json_response({})]
        self.seen: list[tuple[str, str, dict[str, str], str, Any, str]] = []
        self.url = ""
        self.answers = asyncio.Event()
        self.answers.set()

    def say(self, *bodies: Any, status: int = 200, **headers: str) -> None:
        def reply(body: Any) -> Reply:
            return lambda _r, _b: web.json_response(body, status=status, headers=headers)

        self.replies = [reply(body) for body in bodies]

    async def handle(self, request: web.Request) -> web.Response:
        data = await request.read()
        self.seen.append(
            (
                request.method,
                request.path,
                dict(request.query),
                request.content_type,
                json.loads(data) if data else None,
                request.headers.get("Authorization", ""),
            )
        )
        await self.answers.wait()
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        return reply(request, data)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    served.answers.set()
    await runner.cleanup()


def kubeconfig(path: Path, url: str, token: str = "one") -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
async def api(server: Server, tmp_path: Path) -> AsyncIterator[KubeApi]:
    credentials = Credentials(kubeconfig(tmp_path / "config", server.url))
    await credentials.load()
    client = KubeApi(credentials)
    yield client
    await client.close()


OBJECT = {"metadata": {"namespace": "mq", "name": "orders"}}


async def test_a_live_read(server: Server, api: KubeApi) -> None:
    server.say({"kind": "Pod"})
    assert await api.get(POD, "mq", "a-0") == {"kind": "Pod"}
    method, path, _, _, _, authorization = server.seen[0]
    assert (method, path) == ("GET", "/api/v1/namespaces/mq/pods/a-0")
    assert authorization == "Bearer one"


async def test_a_server_that_does_not_answer_in_time_is_unavailable(
    server: Server, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "REQUEST_TIMEOUT_S", 0.05)
    server.answers.clear()
    with pytest.raises(Unavailable, match="had no answer within") as caught:
        await api.get(POD, "mq", "a-0")
    assert caught.value.status == 0


async def test_who_is_told_to_end_with_a_time_out_ends(
    server: Server, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers.clear()
    asking = asyncio.create_task(api.get(POD, "mq", "a-0"))
    await cancelled_after_a_freeze(asking, lambda: bool(server.seen), monkeypatch)


async def test_apply_is_forced_under_our_name(server: Server, api: KubeApi) -> None:
    await api.apply(STATEFULSET, OBJECT)
    await api.apply_status(BROKER_GROUP, OBJECT)
    first, second = server.seen
    assert first[:4] == (
        "PATCH",
        "/apis/apps/v1/namespaces/mq/statefulsets/orders",
        {"fieldManager": "gantry-operator", "force": "true"},
        "application/apply-patch+yaml",
    )
    assert first[4] == OBJECT
    assert second[1] == "/apis/mq.gantry.dev/v1alpha1/namespaces/mq/brokergroups/orders/status"
    assert second[2]["fieldManager"] == "gantry-operator-status"


async def test_a_deletion_names_what_it_means(server: Server, api: KubeApi) -> None:
    await api.delete(POD, "mq", "a-0", uid="u", resource_version="5")
    await api.delete(POD, "mq", "a-0", uid="u")
    assert server.seen[0][0] == "DELETE"
    assert server.seen[0][4]["preconditions"] == {"uid": "u", "resourceVersion": "5"}
    assert server.seen[1][4]["preconditions"] == {"uid": "u"}


async def test_merge_create_and_update(server: Server, api: KubeApi) -> None:
    await api.merge(POD, "mq", "a-0", {"metadata": {"uid": "u"}})
    await api.create(SERVICE, OBJECT)
    await api.update(LEASE, OBJECT)
    assert [entry[:2] for entry in server.seen] == [
        ("PATCH", "/api/v1/namespaces/mq/pods/a-0"),
        ("POST", "/api/v1/namespaces/mq/services"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/mq/leases/orders"),
    ]
    assert server.seen[0][3] == "application/merge-patch+json"


async def test_a_list_is_read_in_chunks(server: Server, api: KubeApi) -> None:
    server.say(
        {"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {}, "items": [{"metadata": {"name": "b"}}]},
    )
    found = [item async for item in api.list_all(POD, None, "x=y")]
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert found[0]["kind"] == "Pod"
    assert found[0]["apiVersion"] == "v1"
    assert server.seen[0][1:3] == ("/api/v1/pods", {"limit": "100", "labelSelector": "x=y"})
    assert server.seen[1][2]["continue"] == "next"


@pytest.mark.parametrize("kind", [STATEFULSET, POD, SERVICE], ids=lambda kind: kind.kind)
async def test_who_wrote_what_is_listed_of_pod_templates_only(
    server: Server, api: KubeApi, kind: Kind
) -> None:
    server.say({"items": [{"metadata": {"name": "a", "managedFields": [{"manager": "me"}]}}]})
    (found,) = [item async for item in api.list_all(kind, None)]
    assert ("managedFields" in found["metadata"]) is (kind == STATEFULSET)


@pytest.mark.parametrize("text", ["{", "[]", '{"items": 1}', '{"items": [1]}'])
async def test_what_is_no_list_of_objects_is_an_answer_of_the_api_server(
    server: Server, api: KubeApi, text: str
) -> None:
    server.replies = [lambda _r, _b: web.Response(text=text, content_type="application/json")]
    with pytest.raises(Unavailable, match=r"/api/v1/pods (was no list|was not JSON|had what)"):
        _ = [item async for item in api.list_all(POD, None)]


async def test_a_list_that_became_too_old_is_no_list(server: Server, api: KubeApi) -> None:
    page = {"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}}]}
    server.replies = [
        lambda _r, _b: web.json_response(page),
        lambda _r, _b: web.json_response({"reason": "Expired"}, status=410),
    ]
    with pytest.raises(Gone):
        _ = [item async for item in api.list_all(POD, "mq")]


ERRORS = [
    pytest.param(400, "BadRequest", Invalid, id="400"),
    pytest.param(403, "Forbidden", Denied, id="403"),
    pytest.param(404, "NotFound", NotFound, id="404"),
    pytest.param(409, "AlreadyExists", AlreadyExists, id="409-exists"),
    pytest.param(409, "Conflict", Conflict, id="409-conflict"),
    pytest.param(410, "Expired", Gone, id="410"),
    pytest.param(418, "Teapot", ApiError, id="other"),
    pytest.param(422, "Invalid", Invalid, id="422"),
    pytest.param(500, "InternalError", Unavailable, id="500"),
    pytest.param(503, "ServiceUnavailable", Unavailable, id="503"),
    pytest.param(504, "Timeout", Unavailable, id="504"),
]


@pytest.mark.parametrize(("status", "reason", "expected"), ERRORS)
async def test_errors(
    server: Server, api: KubeApi, status: int, reason: str, expected: type[ApiError]
) -> None:
    server.say({"kind": "Status", "reason": reason, "message": "because"}, status=status)
    with pytest.raises(ApiError) as caught:
        await api.apply(SERVICE, OBJECT)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert caught.value.message == "because"


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}, Ending),
        ({"causes": [{"reason": "FieldValueInvalid"}, "odd", None]}, Denied),
        ({"causes": "odd"}, Denied),
        ("odd", Denied),
        (None, Denied),
    ],
)
async def test_a_namespace_that_ends_is_no_lack_of_rights(
    server: Server, api: KubeApi, details: object, expected: type[ApiError]
) -> None:
    body = {"kind": "Status", "reason": "Forbidden", "message": "because", "details": details}
    server.say(body, status=403)
    with pytest.raises(ApiError) as caught:
        await api.apply(SERVICE, OBJECT)
    assert type(caught.value) is expected


async def test_a_status_that_is_not_declared_is_the_end(server: Server, api: KubeApi) -> None:
    """Of another object it is told of that object: a person may have written the field."""
    message = "failed to create typed patch object (…): .status.image: field not declared in schema"
    server.say({"kind": "Status", "message": message, "code": 500}, status=500)
    with pytest.raises(OldDefinitionsError) as ended:
        await api.apply_status(BROKER_GROUP, OBJECT)
    assert "BrokerGroup is older than this operator" in str(ended.value)
    assert ".status.image" in str(ended.value)
    with pytest.raises(Undeclared):
        await api.apply(STATEFULSET, OBJECT)


async def test_schemas_are_those_of_the_groups_kinds(server: Server, api: KubeApi) -> None:
    named = [{"group": "mq.gantry.dev", "version": "v1alpha1", "kind": "Topic"}]
    other = [{"group": "", "version": "v1", "kind": "Pod"}]
    ours = {"properties": {"spec": {}}, "x-kubernetes-group-version-kind": named}
    schemas = {"one": ours, "two": {"x-kubernetes-group-version-kind": other}, "three": {}}
    server.say({"components": {"schemas": schemas}})
    assert await api.schemas("mq.gantry.dev", "v1alpha1") == {"Topic": ours}
    assert server.seen[0][1] == "/openapi/v3/apis/mq.gantry.dev/v1alpha1"
    server.say({"components": None})
    assert await api.schemas("mq.gantry.dev", "v1alpha1") == {}


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 1.0), ("", 1.0), ("9999", 60.0), ("soon", 1.0)]
)
async def test_too_many_requests_says_when(
    server: Server, api: KubeApi, header: str, seconds: float
) -> None:
    server.say({}, status=429, **{"Retry-After": header})
    with pytest.raises(TooManyRequests) as caught:
        await api.get(POD, "mq", "a")
    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize("body", [b"", b"plain words", b"[1]", b"\xff\xfe"])
async def test_an_answer_that_is_no_status_is_still_an_error(
    server: Server, api: KubeApi, body: bytes
) -> None:
    server.replies = [lambda _r, _b: web.Response(body=body, status=502)]
    with pytest.raises(Unavailable) as caught:
        await api.get(POD, "mq", "a")
    assert caught.value.message


@pytest.mark.parametrize("body", [b"", b"[1]", b"<html>"])
async def test_a_success_that_is_no_object_is_an_error(
    server: Server, api: KubeApi, body: bytes
) -> None:
    server.replies = [lambda _r, _b: web.Response(body=body)]
    with pytest.raises(Unavailable):
        await api.get(POD, "mq", "a")


async def test_no_server_is_unavailable(tmp_path: Path) -> None:
    credentials = Credentials(kubeconfig(tmp_path / "config", "http://127.0.0.1:1"))
    await credentials.load()
    client = KubeApi(credentials)
    with pytest.raises(Unavailable) as caught:
        await client.get(POD, "mq", "a")
    assert caught.value.status == 0
    await client.close()


async def test_a_rotated_token_is_read_again_once(
    server: Server, api: KubeApi, tmp_path: Path
) -> None:
    kubeconfig(tmp_path / "config", server.url, token="two")
    server.replies = [
        lambda _r, _b: web.json_response({"reason": "Unauthorized"}, status=401),
        lambda _r, _b: web.json_response({}),
    ]
    await api.get(POD, "mq", "a")
    assert [entry[5] for entry in server.seen] == ["Bearer one", "Bearer two"]
    server.say({"reason": "Unauthorized"}, status=401)
    with pytest.raises(Denied):
        await api.get(POD, "mq", "a")
    assert len(server.seen) == 4


async def test_kinds_that_are_served(server: Server, api: KubeApi) -> None:
    server.say({"resources": [{"name": "brokergroups"}, {"name": "brokergroups/status"}]})
    assert await api.is_served(BROKER_GROUP)
    server.say({"resources": []})
    assert not await api.is_served(BROKER_GROUP)
    server.say({}, status=404)
    assert not await api.is_served(BROKER_GROUP)
    server.say({}, status=500)
    with pytest.raises(Unavailable):
        await api.is_served(BROKER_GROUP)


async def test_kopf_gets_the_same_credentials(server: Server, tmp_path: Path) -> None:
    credentials = Credentials(kubeconfig(tmp_path / "config", server.url))
    await credentials.load()
    connection = await credentials.connection()
    assert connection.server == server.url
    assert connection.as_http_headers() == {"Authorization": "Bearer one"}


async def test_missing_credentials_are_one_sentence(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "absent")
    with pytest.raises(ConfigError, match="give --kubeconfig"):
        await credentials.load()


def test_names_in_paths_are_quoted() -> None:
    assert POD.path("a/b", "c d") == "/api/v1/namespaces/a%2Fb/pods/c%20d"


async def test_credentials_are_not_shown(api: KubeApi) -> None:
    assert "one" not in repr(api)
