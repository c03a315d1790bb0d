"""TLS of single listeners: pods, Services while a change is carried out, and certificates."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from pathlib import Path
from typing import Any, cast

import pytest
from gantry_broker.door import DoorSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.settings import ControllerSettings
from gantry_operator.api.errors import Unavailable
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.models import InvalidSpecError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, CheckAgain
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.listener_tls import LOOK_S, judged, secrets_of
from gantry_operator.plan.observed import BrokerObserved, CertificateView
from gantry_operator.reconcile.certificates import FRESH_S, Certificates
from gantry_protocol.process.config import load_settings
from gantry_protocol.tls.listeners import ListenerChoice, ListenerSettings
from gantry_protocol.tls.pairs import pair_fault
from gantry_protocol.tls.settings import TlsMode
from support.certificates import Authority
from unit.operator.fake_api import FakeApi
from unit.operator.world import (
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    live,
    of_type,
    planned,
    pod,
    settled_status,
    told,
    with_status,
)

Json = dict[str, Any]
OWN = {"secretName": "public", "mode": "Enforcing"}
MODELS: dict[str, type[ListenerSettings]] = {
    "broker": BrokerSettings,
    "door": DoorSettings,
    "controller": ControllerSettings,
}
DIRECTORY = "/etc/gantry/listener-tls/outside"


def listener(name: str = "outside", **facts: Any) -> Json:
    return {"name": name, "type": "LoadBalancer", "tls": OWN} | facts


SHARED = listener(tls=None, allowPlain=True)


def clients(*listeners: Json, **facts: Any) -> Json:
    return {"clients": {"listeners": list(listeners or (listener(),)), **facts}}


def built(**spec: Any) -> list[Json]:
    return broker_objects(brokers(**spec), controllers(), image="i", replicas=3)


def pod_of(objects: list[Json]) -> Json:
    found: Json = objects[-1]["spec"]["template"]["spec"]
    return found


def containers(objects: list[Json]) -> dict[str, Json]:
    return {one["name"]: one for one in pod_of(objects)["containers"]}


def settings(container: Json) -> ListenerSettings:
    """What a process with this environment reads."""
    env = {item["name"]: item.get("value", "10.0.0.1") for item in container["env"]}
    env = {name: text.replace("$(POD_IP)", "10.0.0.1") for name, text in env.items()}
    found = load_settings(MODELS[container["name"]], {}, env | {"GANTRY_CONFIG": ""})
    assert isinstance(found, ListenerSettings)
    return found


def ports(container: Json) -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in container["ports"]}


def targets(objects: list[Json]) -> dict[str, Any]:
    """Where the Services of listeners lead."""
    return {
        one["metadata"]["name"]: one["spec"]["ports"][0]["targetPort"]
        for one in objects
        if one["kind"] == "Service" and "-at-" in one["metadata"]["name"]
    }


class TestPods:
    def test_doors_and_brokers_listen_at_ports_of_their_own(self) -> None:
        objects = built(
            **clients(listener(), listener("other", tls={"mode": "Disabled"}, allowPlain=True))
        )
        found = containers(objects)
        for name, first, prefix in (("door", 10930, "at"), ("broker", 10940, "to")):
            read = settings(found[name])
            assert read.listener_ports == {"outside": first, "other": first + 1}
            assert read.listener_choices == {
                "outside": ListenerChoice(TlsMode.ENFORCING, Path(DIRECTORY)),
                "other": ListenerChoice(TlsMode.DISABLED),
            }
            assert read.mode is TlsMode.DISABLED, "those inside have none"
            assert ports(found[name])[f"{prefix}-outside"] == first
            mount = {"name": "gantry-at-outside", "mountPath": DIRECTORY, "readOnly": True}
            assert mount in found[name]["volumeMounts"]
        volumes = [one for one in pod_of(objects)["volumes"] if one["name"][:7] == "gantry-"]
        assert volumes == [
            {
                "name": "gantry-at-outside",
                "secret": {"secretName": "public", "defaultMode": 0o440, "optional": True},
            }
        ], "pods start without it"
        assert targets(objects) == {
            "orders-at-outside": "at-outside",
            **{f"orders-at-outside-{n}": "to-outside" for n in range(3)},
            "orders-at-other": "at-other",
            **{f"orders-at-other-{n}": "to-other" for n in range(3)},
        }
        (policy,) = [one for one in objects if one["kind"] == "NetworkPolicy"]
        entrance = {one["port"] for one in policy["spec"]["ingress"][0]["ports"]}
        assert entrance == {10910, 10911, 10930, 10931, 10940, 10941}

    @pytest.mark.parametrize("way", [{"route": "Pod"}, {"door": {"enabled": False}}])
    def test_brokers_without_doors_have_the_entrance(self, way: Json) -> None:
        objects = built(**clients(**way))
        (broker,) = containers(objects).values()
        assert settings(broker).listener_ports == {"outside": 10930}
        assert ports(broker)["at-outside"] == 10930
        assert set(targets(objects).values()) == {"at-outside"}

    def test_the_certificate_may_be_that_of_all(self) -> None:
        spec = clients(listener(tls={"mode": "Enforcing"})) | {"tls": {"secretName": "all"}}
        objects = built(**spec)
        for container in containers(objects).values():
            read = settings(container)
            assert read.listener_choices == {"outside": ListenerChoice(TlsMode.ENFORCING)}
            assert read.mode is TlsMode.PERMISSIVE
        assert not [one for one in pod_of(objects)["volumes"] if one["name"][:7] == "gantry-"]

    def test_only_listeners_with_tls_have_ports(self) -> None:
        """So one without comes and goes, and restarts nothing."""
        alone = built(**clients(listener()))[-1]["spec"]
        shared = listener("shared", tls=None, allowPlain=True)
        for both in ((shared, listener()), (listener(), shared)):
            assert built(**clients(*both))[-1]["spec"] == alone
        found = targets(built(**clients(shared, listener())))
        assert found["orders-at-shared"] == "remoting"
        assert found["orders-at-shared-0"] == 10911

    def test_controllers_have_it_at_the_listeners_port(self) -> None:
        quorum = controllers(**clients(SHARED | {"name": "first"}, listener()))
        (container,) = containers(controller_objects(quorum, image="i")).values()
        read = settings(container)
        assert read.listener_ports == {"first": 10930, "outside": 10931}
        assert read.listener_choices == {
            "outside": ListenerChoice(TlsMode.ENFORCING, Path(DIRECTORY))
        }
        plain = controllers(**clients(SHARED))
        env = containers(controller_objects(plain, image="i"))["controller"]["env"]
        assert "GANTRY_LISTENER_TLS" not in {one["name"] for one in env}


@pytest.mark.parametrize("make", [brokers, controllers])
def test_plain_text_is_judged_by_listener(make: Any) -> None:
    enforced = {"tls": {"secretName": "all", "mode": "Enforcing"}}
    for mode, of_all in (("Permissive", enforced), ("Disabled", enforced), ("Permissive", {})):
        plain = listener(tls=OWN | {"mode": mode})
        with pytest.raises(InvalidSpecError, match=r"needs tls\.mode Enforcing"):
            make(**clients(plain), **of_all)
        make(**clients(plain | {"allowPlain": True}), **of_all)
    with pytest.raises(InvalidSpecError, match="needs a certificate"):
        make(**clients(listener(tls={})))
    make(**clients(listener(tls={})), tls={"secretName": "all"})
    make(**clients())


def applied(seen: BrokerObserved) -> dict[str, Any]:
    """Where Services lead that are applied now."""
    return targets([action.manifest for action in of_type(planned(seen), ApplyObject)])


def world(*before: Json, **facts: Any) -> BrokerObserved:
    """A listener gets TLS of its own; the world is as it was with the listeners `before`."""
    seen = broker_world(brokers(**clients(*before)) if before else brokers())
    return cast("BrokerObserved", changed(seen, group=brokers(**clients()), **facts))


def rolling(*revisions: str, at: Json | None = None) -> BrokerObserved:
    """The new template is applied, and pods are of these revisions."""
    seen = world(SHARED, pods=tuple(pod(n, revision=one) for n, one in enumerate(revisions)))
    new = built(**clients(*((at,) if at else ())))[-1]
    return cast("BrokerObserved", changed(seen, objects=seen.objects | live([new])))


class TestChange:
    def test_a_listener_serves_as_before_until_the_change_is_carried_out(self) -> None:
        assert applied(world(SHARED)) == {}, "the template is yet to be applied"
        assert applied(rolling("rev-new", OLD, "rev-new")) == {}
        done = applied(rolling("rev-new", "rev-new", "rev-new"))
        assert done["orders-at-outside"] == "at-outside"
        assert done["orders-at-outside-0"] == "to-outside"

    def test_it_stays_while_nobody_knows_which_pods_are_new(self) -> None:
        seen = rolling("rev-new", "rev-new", "rev-new")
        seen.objects["StatefulSet", "orders-broker"]["metadata"]["generation"] = 2
        assert "orders-at-outside" not in applied(seen)

    def test_a_new_one_leads_to_its_own_port_at_once(self) -> None:
        """Nobody is served there without the TLS that its owner wishes."""
        assert applied(world())["orders-at-outside"] == "at-outside"

    def test_one_that_shares_the_port_again_is_led_there_at_once(self) -> None:
        seen = broker_world(brokers(**clients()))
        back = changed(seen, group=brokers(**clients(SHARED)))
        assert applied(back)["orders-at-outside"] == "remoting"

    def test_it_is_foreseen_restart_by_restart(self) -> None:
        found = foresee(world(SHARED), NOW, plan, rolls=lambda new, old: new != old)
        said = [step.message for step in found.steps]
        restarts = [n for n, text in enumerate(said) if text.startswith("Restart ")]
        assert len(restarts) == 3
        assert said.index("Change Service orders-at-outside.") > restarts[-1]
        assert found.waits == ""

    def test_another_secret_restarts_them_and_its_content_does_not(self) -> None:
        seen = broker_world(brokers(**clients()))
        other = changed(seen, group=brokers(**clients(listener(tls=OWN | {"secretName": "b"}))))
        restarted = foresee(other, NOW, plan, rolls=lambda new, old: new != old).disruptive
        assert len([step for step in restarted if step.kind == "Restart"]) == 3
        renewed = changed(seen, certificates=(CertificateView("public", "Read", ends=1),))
        assert not foresee(renewed, NOW, plan, rolls=lambda new, old: new != old).disruptive


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def entries(authority: Authority, **other: bytes | None) -> dict[str, str]:
    """A Secret with a certificate of two days, but for what is said."""
    pair = authority.issue("mq.example.com", days=2)
    found = {"tls.crt": pair.cert.read_bytes(), "tls.key": pair.key.read_bytes()}
    for name, text in other.items():
        key = name.replace("_", ".")
        found = {k: v for k, v in found.items() if k != key} | ({} if text is None else {key: text})
    return {name: base64.b64encode(text).decode() for name, text in found.items()}


class TestCertificates:
    def test_only_own_ones_are_looked_at(self) -> None:
        several = clients(
            listener(),
            listener("b", tls={"mode": "Enforcing"}),
            listener("c", tls={"mode": "Disabled", "secretName": "unused"}, allowPlain=True),
            listener("d", tls=OWN | {"secretName": "another"}),
        )
        group = brokers(**several, tls={"secretName": "all"})
        assert secrets_of(group.spec.clients.listeners) == ("another", "public")

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            ({"tls_crt": None}, "it has no tls.crt"),
            ({"tls_key": None}, "it has no tls.key"),
            ({"tls_crt": b""}, "its tls.crt holds no certificate in PEM"),
            ({"tls_crt": "\u00fc".encode()}, "its tls.crt holds no certificate in PEM"),
            (
                {"tls_crt": b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"},
                "its tls.crt does not read",
            ),
            ({"tls_key": b"secret words"}, "its tls.key holds no private key in PEM"),
        ],
    )
    def test_what_is_no_good_is_said(
        self, authority: Authority, other: dict[str, bytes | None], said: str
    ) -> None:
        found = judged("public", entries(authority, **other), pair_fault)
        assert (found.state, found.text) == ("Unusable", said)
        assert "secret words" not in repr(found)

    def test_a_key_of_another_certificate_is_said_and_what_to_do(
        self, authority: Authority
    ) -> None:
        """The condition has one sentence, and no byte of the key."""
        key = authority.issue("other").key.read_bytes()
        found = judged("public", entries(authority, tls_key=key), pair_fault)
        for seen in (
            broker_world(brokers(**clients()), controllers=controllers(**clients())),
            controller_world(controllers(**clients())),
        ):
            assert told(changed(cast("Any", seen), certificates=(found,)), "ListenersServed") == (
                "False",
                "CertificateUnusable",
                (
                    "Listener outside: Secret public is no good, its tls.key is not the key of its "
                    "tls.crt: put a certificate and its own key in PEM there; pods show the last "
                    "good certificate that they had."
                ),
            )
        for line in key.decode().splitlines()[1:-1]:
            assert line not in repr(found)

    def test_no_base64_is_no_good(self) -> None:
        found = judged("public", {"tls.crt": "%", "tls.key": "%"}, pair_fault)
        assert (found.state, found.text) == ("Unusable", "its entries are no base64")

    def test_the_end_is_read(self, authority: Authority) -> None:
        found = judged("public", entries(authority), pair_fault)
        assert found.state == "Read"
        left = dt.datetime.fromtimestamp(found.ends, dt.UTC) - dt.datetime.now(dt.UTC)
        assert dt.timedelta(hours=47) < left <= dt.timedelta(hours=48)

    @pytest.mark.parametrize("kind", ["brokers", "controllers"])
    @pytest.mark.parametrize(
        ("view", "said"),
        [
            (CertificateView("public", "Missing"), "Secret public does not exist"),
            (CertificateView("public", "Unusable", "it has no tls.key"), "it has no tls.key"),
            (
                CertificateView("public", "Read", ends=int(NOW.timestamp())),
                f"the certificate in Secret public ended at {NOW:%Y-%m-%dT%H:%M:%SZ}",
            ),
        ],
    )
    def test_one_condition_says_what_to_do(
        self, kind: str, view: CertificateView, said: str
    ) -> None:
        seen: Any = (
            broker_world(brokers(**clients()), controllers=controllers(**clients()))
            if kind == "brokers"
            else controller_world(controllers(**clients()))
        )
        status, reason, text = told(changed(seen, certificates=(view,)), "ListenersServed")
        assert (status, reason) == ("False", "CertificateUnusable")
        assert text.startswith("Listener outside: ")
        assert said in text
        assert told(changed(seen, certificates=(view,)), "Ready")[0] == "True"

    def test_a_good_one_is_no_word_of_it(self) -> None:
        good = (CertificateView("public", "Read", ends=int(NOW.timestamp()) + 1),)
        seen = changed(controller_world(controllers(**clients())), certificates=good)
        assert told(seen, "ListenersServed")[:2] == ("True", "ListenersServed")
        group = changed(broker_world(brokers(**clients())), certificates=good)
        assert told(group, "ListenersServed")[1] == "ListenerUnknown", "the next thing amiss"
        unread = changed(seen, certificates=(CertificateView("public", "Unread"),))
        assert told(unread, "ListenersServed")[0] == "True", "nothing is known against it"

    def test_a_quorum_without_has_no_such_condition(self) -> None:
        for spec in ({}, clients(SHARED)):
            found = settled_status(controller_world(controllers(**spec)))["conditions"]
            assert "ListenersServed" not in {one["type"] for one in found}

    def test_they_are_looked_at_again(self) -> None:
        good = (CertificateView("public", "Read", ends=2_000_000_000),)
        for seen in (
            broker_world(brokers(**clients())),
            controller_world(controllers(**clients())),
        ):
            settled: Any = with_status(changed(seen, certificates=good))
            (again,) = of_type(planned(settled), CheckAgain)
            assert again.after_s == LOOK_S
            assert not of_type(planned(changed(settled, certificates=())), CheckAgain)


def put(api: FakeApi, data: dict[str, str] | None) -> None:
    meta = {"name": "public", "namespace": "mq"}
    if data is None:
        api.objects.pop(("Secret", "mq", "public"), None)
    else:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
        api.objects["Secret", "mq", "public"] = body


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_secrets_are_read_by_name_and_seldom(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    api = FakeApi()
    read = Certificates(api)

    async def state() -> str:
        (found,) = await read.of("mq", ("public",))
        return found.state

    assert await state() == "Missing"
    put(api, entries(authority))
    assert await state() == "Missing", "it was looked at a moment ago"
    await asyncio.sleep(FRESH_S)
    assert await state() == "Read"
    put(api, None)
    await asyncio.sleep(FRESH_S)
    assert await state() == "Missing"
    assert await read.of("mq", ()) == ()
    put(api, {})
    await asyncio.sleep(FRESH_S)
    assert await state() == "Unusable"
    good = entries(authority)
    key = authority.issue("other").key.read_bytes()
    put(api, good | {"tls.key": base64.b64encode(key).decode()})
    await asyncio.sleep(FRESH_S)
    assert await state() == "Unusable", "the key is another's"
    put(api, good)
    await asyncio.sleep(FRESH_S)
    assert await state() == "Read"
    assert "PRIVATE KEY" not in caplog.text


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_an_api_server_that_is_away_takes_no_judgement_back(authority: Authority) -> None:
    class Away(FakeApi):
        away = True

        async def get(self, *args: Any) -> Any:
            if self.away:
                raise Unavailable(503, "ServiceUnavailable", "away")
            return await super().get(*args)

    api = Away()
    read = Certificates(api)
    (found,) = await read.of("mq", ("public",))
    assert found.state == "Unread"
    api.away = False
    put(api, entries(authority))
    await asyncio.sleep(FRESH_S)
    (known,) = await read.of("mq", ("public",))
    api.away = True
    await asyncio.sleep(FRESH_S)
    assert await read.of("mq", ("public",)) == (known,)
