"""Users and rules: what can be one, its one form, and that no secret is shown."""

import pytest
from gantry_protocol.access.rules import (
    RULES_MAX,
    SOURCES_MAX,
    AccessError,
    Rule,
    User,
    canonical_resource,
    make_rule,
    merged,
    secret_problem,
    subject_user,
    user_problem,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("*", "*"),
        (" * ", "*"),
        ("Topic:*", "Topic:*"),
        ("topic:orders", "Topic:orders"),
        ("TOPIC:orders*", "Topic:orders*"),
        ("Group:%RETRY%g", "Group:%RETRY%g"),
        ("Cluster:gantry", "Cluster:gantry"),
    ],
)
def test_resources_have_one_form(text: str, form: str) -> None:
    assert canonical_resource(text) == form


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Topic",
        "Topic:",
        "Namespace:n",
        "Topic:a*b",
        "Topic:**",
        "Topic:a b",
        "Topic:" + 256 * "a",
    ],
)
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(AccessError, match="is no resource"):
        canonical_resource(text)


def test_a_rule_is_kept_in_one_form() -> None:
    one = make_rule("topic:t", ["sub", "Pub", "SUB"], ["10.0.0.7/8", "::1"], "deny", "")
    assert one == Rule("Topic:t", ("Pub", "Sub"), ("10.0.0.0/8", "::1/128"), "Deny", "Custom")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("Topic:t", []), "names no action"),
        (("Topic:t", ["Any"]), "no action"),
        (("Topic:t", ["Pub"], ["10.0.0.256"]), "no IP address"),
        (("Topic:t", ["Pub"], [""]), "no IP address"),
        (("Topic:t", ["Pub"], [f"10.0.0.{n}" for n in range(SOURCES_MAX + 1)]), "at most"),
        (("Topic:t", ["Pub"], [], "Maybe"), "no decision"),
        (("Topic:t", ["Pub"], [], ""), "no decision"),
        (("Topic:t", ["Pub"], [], "Allow", "Other"), "no type of policy"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(arguments: tuple, what: str) -> None:
    with pytest.raises(AccessError, match=what):
        make_rule(*arguments)


@pytest.mark.parametrize("name", ["", "a b", "gantry", 65 * "u", "u\n", "ü", "User:u"])
def test_what_is_no_users_name(name: str) -> None:
    assert user_problem(name) is not None


def test_a_subject_is_a_user() -> None:
    assert subject_user("User:ada") == subject_user("user:ada") == "ada"
    for text in ("ada", "Role:ada", "User:", "User:gantry"):
        with pytest.raises(AccessError):
            subject_user(text)


@pytest.mark.parametrize(
    "secret", ["", "7 chars", 129 * "s", "with space", "täglich-neu", "12345678\n"]
)
def test_what_is_no_secret_is_not_repeated(secret: str) -> None:
    problem = secret_problem(secret)
    assert problem is not None
    assert not secret or secret not in problem
    assert secret_problem("12345678") is None


def test_a_later_rule_of_the_same_resource_replaces_the_earlier() -> None:
    old = (make_rule("Topic:t", ["Pub"]),)
    new = (make_rule("Topic:t", ["Sub"]), make_rule("Topic:t", ["Get"], policy="Default"))
    assert merged(old, new) == (new[0], new[1])
    with pytest.raises(AccessError, match="at most"):
        merged((), [make_rule(f"Topic:t{n}", ["Pub"]) for n in range(RULES_MAX + 1)])


def test_no_user_shows_its_secret() -> None:
    user = User("hush-hush-hush", "Super", rules=(make_rule("*", ["All"]),))
    for shown in (repr(user), str(user), f"{user}", repr({"u": user}), repr(user.__rich_repr__())):
        assert "hush" not in shown


@given(st.text(max_size=300), st.lists(st.text(max_size=40), max_size=5), st.text(max_size=40))
def test_any_text_is_a_rule_or_refused(text: str, actions: list[str], source: str) -> None:
    try:
        rule = make_rule(text, actions, [source])
    except AccessError:
        return
    assert make_rule(rule.resource, rule.actions, rule.sources, rule.decision, rule.policy) == rule
