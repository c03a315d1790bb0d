"""An admission webhook in the test's process: it refuses, or changes, what a test says.

Each write of the kinds that it hears about is asked of it, so a rule is in force from one request
to the next. It is the API server that answers the client, with the code and words of the rule.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from support.certificates import Authority

Json = dict[str, Any]
Patch = list[Json]
Rule = Callable[[Json], "Refusal | Patch | None"]
"""By an AdmissionRequest, what becomes of it; None: it goes through."""
HOST = "127.0.0.1"


class Refusal(Exception):  # noqa: N818  # no fault of the test's
    """The answer to a write that does not go through."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Admission:
    """The webhook; use it in `with`.

    Attributes:
        asked: how many writes a rule has refused or changed.
    """

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        pair = authority.issue(HOST)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self._authority = authority.file.read_bytes()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._rules: list[Rule] = []
        self.asked = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def rule(self, rule: Rule) -> Iterator[None]:
        """A rule in force."""
        self._rules.append(rule)
        try:
            yield
        finally:
            self._rules.remove(rule)

    @property
    def client(self) -> Json:
        """The way of the API server to it."""
        return {
            "url": f"https://{HOST}:{self._server.server_address[1]}/",
            "caBundle": base64.b64encode(self._authority).decode(),
        }

    def _answer(self, request: Json) -> Json:
        found = (answer for rule in list(self._rules) if (answer := rule(request)) is not None)
        answer = next(found, None)
        if answer is None:
            return {"uid": request["uid"], "allowed": True}
        self.asked += 1
        if isinstance(answer, Refusal):
            status = {"code": answer.code, "message": answer.message}
            return {"uid": request["uid"], "allowed": False, "status": status}
        patch = base64.b64encode(json.dumps(answer).encode()).decode()
        return {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                review["response"] = answer(review.pop("request"))
                body = json.dumps(review).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        return Handler


def refuse(
    message: str,
    *,
    resource: str,
    name: str = "",
    code: int = 403,
    subresource: str = "",
    operations: tuple[str, ...] = ("CREATE", "UPDATE", "DELETE"),
    manager: str = "gantry-operator",
) -> Rule:
    """A rule that refuses what one writer says about one object, or about all of a resource."""

    def rule(request: Json) -> Refusal | None:
        written_by = (request.get("options") or {}).get("fieldManager", "")
        found = (
            request["resource"]["resource"] == resource
            and request.get("subResource", "") == subresource
            and request["operation"] in operations
            and name in ("", request.get("name", ""))
            and written_by.startswith(manager)
        )
        return Refusal(code, message) if found else None

    return rule


def configuration(name: str, client: Json, *resources: str, namespace: str) -> Json:
    """What the API server is to know of a webhook: it asks about writes of these resources."""
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": list(resources),
    }
    hook = {
        "name": f"{name}.gantry.test",
        "clientConfig": client,
        "rules": [everything],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Ignore",  # a test that ends leaves nothing in the way
        "timeoutSeconds": 5,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }
