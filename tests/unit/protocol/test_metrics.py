"""docs/metrics.md names what every component exports."""

from __future__ import annotations

from gantry_protocol.member_tls.process import NO_MEMBER_TLS, MemberTlsCollector
from gantry_protocol.process.metrics import LookupsCollector
from gantry_protocol.tls.listeners import ListenerChoice, ListenerTls, ListenerTlsCollector
from gantry_protocol.tls.process import NO_TLS, TlsCollector
from gantry_protocol.tls.settings import TlsMode, TlsSettings
from gantry_protocol.tracing.export import TracingCollector, live_export
from support.metrics_page import SHARED, check_section


def test_page_names_every_metric_and_no_other() -> None:
    own = ListenerTls("outside", ListenerChoice(TlsMode.DISABLED), TlsSettings())
    collectors = (
        LookupsCollector(),
        TlsCollector(NO_TLS),
        ListenerTlsCollector({"outside": own}),
        MemberTlsCollector(NO_MEMBER_TLS),
        TracingCollector(live_export(None, "s", "c", "i")),
    )
    families = [family for collector in collectors for family in collector.collect()]
    check_section("Every component", families)
    assert [family.name for family in families if not family.name.startswith(SHARED)] == []
