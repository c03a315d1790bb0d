"""Secrets that a redactor takes out, what it leaves, and its counts."""

from __future__ import annotations

import base64
import json

import pytest
from gantry_operator.redact import (
    KEY_LINES_MAX,
    PLACES_MAX,
    Redacted,
    Redactor,
    is_secret_name,
)
from hypothesis import given
from hypothesis import strategies as st

KEY = "hunter2"
BASE64_LINE = "MIIEowIBAAKCAQEA0Z3VS5JJcds3xfn" * 2
PEM = "-----BEGIN {0}PRIVATE KEY-----\n{1}\nab1=\n-----END {0}PRIVATE KEY-----"
RANDOM = "Yb3kQ9vTz7LmX1cRw5NpH8dJf2GsA6uE4oViKq0BtMx"  # as secrets.token_urlsafe(32)


def text(value: str) -> str:
    return Redactor().text("f", value)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(f"password={KEY}", id="pair"),
        pytest.param(f"PGPASSWORD={KEY} psql", id="variable"),
        pytest.param(f"password: {KEY} {KEY} {KEY}", id="yaml-with-blanks"),
        pytest.param(f"password:   {KEY} x {KEY}", id="yaml-after-blanks"),
        pytest.param(f'"password": "a\\"{KEY}", "b": 1', id="json-with-a-quote"),
        pytest.param(f"password='it''s {KEY}'", id="yaml-with-a-quote"),
        pytest.param(f'body="{{\\"token\\": \\"a\\\\\\"{KEY}\\"}}"', id="json-in-a-string"),
        pytest.param(f'"secretKey": "{KEY} without an end', id="cut"),
        pytest.param(f'"pins":1,"password":{KEY},"a":2', id="number-in-json"),
        pytest.param(f'passwords = ["{KEY}", "{KEY}"]', id="list-of-toml"),
        pytest.param(f"password=[{KEY}", id="bracket"),
        pytest.param(f"password={{{KEY}}}", id="brace"),
        pytest.param(f"password: |\n  {KEY}\n\n  {KEY}\nnext: 1", id="block-of-yaml"),
        pytest.param(f"password: |\n  x{KEY}", id="block-to-the-end"),
        pytest.param(f"- db.password: >-\n    {KEY}\n  next: 1", id="folded-in-a-list"),
        pytest.param(f'token = """\n{KEY}\n"""', id="lines-of-toml"),
        pytest.param(f'token = """\n{KEY}\n', id="lines-of-toml-cut"),
        pytest.param(f"- name: DB_PASS\n  value: {KEY} {KEY}\n", id="environment-of-yaml"),
        pytest.param(f'{{"name":"API_KEY","value":"{KEY}"}}', id="environment-of-json"),
        pytest.param(f'{{"value":"{KEY}","name":"HMAC_KEY"}}', id="value-first"),
        pytest.param(f"Authorization: Custom {KEY}", id="header"),
        pytest.param(f"said bearer {KEY}{KEY}", id="bearer"),
        pytest.param(f"Basic {base64.b64encode(f'a:{KEY}'.encode()).decode()}", id="basic"),
        pytest.param(f"curl -u admin:{KEY} http://x", id="curl"),
        pytest.param(f"postgres://user:{KEY}@host/db", id="url"),
        pytest.param(f"postgres://user:a@{KEY}/b@host/db", id="url-with-signs"),
        pytest.param(f"https://{KEY}@host/x", id="url-of-a-token"),
        pytest.param(f"GET /o?X-Amz-Credential={KEY}&X-Amz-Signature={KEY}", id="signed"),
        pytest.param(f"/o?sig={KEY}&a=1", id="sas"),
        pytest.param(f"x-api-key => {KEY}", id="arrow"),
    ],
)
def test_no_secret_is_left(given: str) -> None:
    redactor = Redactor()
    clean = redactor.text("f", given)
    assert KEY not in clean
    for word in given.split("="):
        assert base64.b64encode(f"a:{KEY}".encode()).decode() not in clean, word
    assert sum(one.count for one in redactor.found()) >= 1
    again = Redactor()
    assert again.text("f", clean) == clean
    assert again.found() == []


@pytest.mark.parametrize(
    "word",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "LTAI5tFexampleExample",
        "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        RANDOM,
        base64.b64encode(PEM.format("", BASE64_LINE).encode()).decode(),
    ],
)
def test_words_with_the_form_of_a_secret(word: str) -> None:
    assert word not in text(f"it said {word}, then ended")
    assert text(f"it said {word}, then ended").endswith(", then ended")


@pytest.mark.parametrize("sort", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_private_keys(sort: str) -> None:
    whole = PEM.format(sort, BASE64_LINE)
    for cut in (
        whole,
        whole.replace("\n", "\\n"),
        "\n".join(f"2026-11-29T12:00:00Z {line}" for line in whole.split("\n")),
        whole.rpartition("\n")[0],
        whole.rpartition("\n")[0].rpartition("\n")[0],
        whole.partition("\n")[2],
        f"{whole}\n{whole}",
    ):
        clean = text(f"before\n{cut}\nafter it goes on")
        assert BASE64_LINE[:20] not in clean
        assert "ab1=" not in clean or "END" not in cut, "what is short and cut is not known"
        assert clean.startswith("before\n")
        assert clean.endswith("\nafter it goes on")


def test_a_key_that_never_ends_does_not_take_the_log_with_it() -> None:
    lines = [f"{BASE64_LINE}"] * (KEY_LINES_MAX + 5)
    clean = text("\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "level=info event=x"]))
    assert clean.count(BASE64_LINE) <= 5
    assert clean.endswith("level=info event=x")


@pytest.mark.parametrize(
    "given",
    [
        'time=2026-11-29T12:00:00.1Z level=info event="token read" path=/etc/gantry/admin/token',
        "admin_token_file=/etc/gantry/admin/token tokenExpirationSeconds=3607 token=null",
        "secretName: orders-tls",
        '"credentialsSecret": {\n  "name": "orders-keys"\n}',
        "password=${DB_PASSWORD} password=$(DB_PASSWORD)",
        "image sha256:" + "0123abcd" * 8,
        "https://10.96.0.1:443/api/v1?mail=a@b",
        "/var/lib/kubelet/pods/9e107d9d-372b-4c2e-8d5f-0a1b2c3d4e5f/volumes/pvc-9e107d9d",
        "ControllerGroupNotFoundSoNothingIsChanged",
        'password=""',
    ],
)
def test_what_is_no_secret_stays(given: str) -> None:
    assert text(given) == given


def test_objects_are_judged_by_their_keys() -> None:
    body = {
        "kind": "Pod",
        "metadata": {
            "annotations": {
                "last": json.dumps({"env": [{"name": "DB_PASSWORD", "value": KEY}]}),
                "example.com/api-token": KEY,
            }
        },
        "spec": {
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [
                {
                    "args": ["--password", KEY, f"--token={KEY}", "--verbose", "kept"],
                    "env": [
                        {"name": "DB_PASSWORD", "value": KEY},
                        {"name": "STRIPE_KEY", "value": KEY},
                        {"name": "SEED", "value": f"amqp://a:{KEY}@mq"},
                        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "ALLOW_UNAUTHENTICATED", "value": "true"},
                    ],
                    "probe": {"httpHeaders": [{"name": "Authorization", "value": f"x {KEY}"}]},
                }
            ],
        },
        "data": {"gantry.toml": f'api_key = "{KEY}"\n', "password": KEY, "pins": 5},
        "binaryData": {"store": "AAAA"},
        "secrets": [KEY, {"name": "ref"}],
        "tokens": [KEY, 12345],
    }
    redactor = Redactor()
    clean = redactor.value("o", body)
    assert KEY not in json.dumps(clean)
    assert "AAAA" not in json.dumps(clean)
    assert clean["tokens"][1] != 12345
    (container,) = clean["spec"]["containers"]
    assert container["args"][3:] == ["--verbose", "kept"]
    assert container["env"][3] == body["spec"]["containers"][0]["env"][3]
    assert container["env"][4]["value"] == "true"
    assert clean["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert clean["data"]["pins"] == 5
    places = [place for one in redactor.found() for place in one.places]
    assert "spec.containers[0].env[0][DB_PASSWORD]" in places
    as_text = json.dumps(clean, indent=2)
    assert Redactor().text("o", as_text) == as_text, "a look at the written file finds nothing"


def test_what_is_too_deep_is_left_out() -> None:
    deep: object = KEY
    for _ in range(60):
        deep = [deep]
    assert KEY not in json.dumps(Redactor().value("o", deep))
    nested = KEY
    for _ in range(8):
        nested = json.dumps([{"token": nested}])
    assert KEY not in Redactor().value("o", {"a": nested})["a"]


def test_it_counts_by_file_and_sort_and_names_the_first_places() -> None:
    redactor = Redactor()
    redactor.text("a.log", "x\n" + f"password={KEY}\n" * 30)
    redactor.text("b.log", f"password={KEY} and AKIAIOSFODNN7EXAMPLE")
    by_name, other, access = redactor.found()
    assert (by_name.file, by_name.count, len(by_name.places)) == ("a.log", 30, PLACES_MAX)
    assert by_name.places[0] == "line 2"
    assert access == Redacted("b.log", "value with a secret-like name", 1, ("line 1",))
    assert other == Redacted("b.log", "access key", 1, ("line 1",))


@pytest.mark.parametrize("name", ["PASSWORD", "db-password", "accessKeyId", "mq.gantry.dev/token"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokenFile", "secretName", "key", "replicas", "passive", "PATH"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "part",
    [
        '"value": 5, ',
        'token: \\"x ',
        "https://a:b",
        "-----BEGIN PRIVATE KEY----- ",
        "a" * 40,
        "a=''",
    ],
)
def test_a_long_line_takes_no_long_time(part: str) -> None:
    line = part * (50_000 // len(part))
    for one in (line, line.replace(" ", "")):
        clean = text(one)
        assert text(clean) == clean


@given(
    before=st.text(max_size=30),
    after=st.text(max_size=30),
    separator=st.sampled_from(["=", ": ", ":", " = ", '": "', "=>"]),
    name=st.sampled_from(["password", "GANTRY_TOKEN", "secretKey", "x-api-key"]),
)
def test_nothing_around_a_secret_hides_it(
    before: str, after: str, separator: str, name: str
) -> None:
    secret = "q7Zr4Wm2Kx"
    clean = text(f"{before} {name}{separator}{secret} {after}")
    assert secret not in clean
    assert text(clean) == clean


def test_of_a_block_at_the_end_of_a_text_nothing_is_left() -> None:
    mark = "[redacted value with a secret-like name]"
    assert text("a: 1\npassword: |\n  xyz") == f"a: 1\npassword: |\n  {mark}"
