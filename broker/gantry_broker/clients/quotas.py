"""Quotas of tenants: how much each may send and read, and how long it waits for more.

A tenant is what stands before the first ``%`` of a topic's name, RocketMQ's namespace
(``NamespaceUtil``); retry and dead-letter topics belong to the tenant of their group, and topics
without a namespace to the tenant "". Rates are kept by the generic cell rate algorithm: a quota is
one number, the time at which all that was granted is paid for, so a burst of one second passes and
nothing has to be refilled by a timer.
"""

from gantry_protocol.settings.quotas import Quota, Quotas

BURST_S = 1.0
MAX_TENANTS = 10_000  # more are counted together, as the one with the name ``REST``
REST = "%"  # no tenant is called so
_NO_WAIT_S = 0.001  # nobody is held for less
_PREFIXES = ("%RETRY%", "%DLQ%")


def tenant_of(topic: str) -> str:
    """Whose topic it is."""
    for prefix in _PREFIXES:
        topic = topic.removeprefix(prefix)
    name, separator, _ = topic.partition("%")
    return name if separator else ""


class _Ledger:
    """What one tenant has been granted, in loop seconds until it is paid for."""

    __slots__ = ("bytes_s", "quota", "reads_s", "sends_s")

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.sends_s = self.bytes_s = self.reads_s = 0.0

    def is_paid(self, now_s: float) -> bool:
        return max(self.sends_s, self.bytes_s, self.reads_s) <= now_s


class Meter:
    """Counts what tenants do against their quotas.

    Args:
        quotas: what each may do.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._ledgers: dict[str, _Ledger] = {}

    def change(self, quotas: Quotas) -> None:
        """Other quotas from now on; what was granted is paid for first."""
        self._quotas = quotas
        for tenant, ledger in self._ledgers.items():
            ledger.quota = self._quota_of(tenant)

    def send(
        self, tenant: str, messages: int, size_bytes: int, now_s: float, patience_s: float
    ) -> float | None:
        """Grant a send, to be done in so many seconds; None when that would exceed patience."""
        ledger = self._ledger(tenant, now_s)
        quota = ledger.quota
        sends_s = _paid(ledger.sends_s, messages, quota.sends_per_second, now_s)
        bytes_s = _paid(ledger.bytes_s, size_bytes, quota.send_bytes_per_second, now_s)
        wait_s = max(ledger.sends_s, ledger.bytes_s) - BURST_S - now_s
        if wait_s > patience_s:
            return None
        ledger.sends_s, ledger.bytes_s = sends_s, bytes_s
        return wait_s if wait_s > _NO_WAIT_S else 0.0

    def read(self, tenant: str, size_bytes: int, now_s: float) -> None:
        """A pull has returned so much."""
        ledger = self._ledger(tenant, now_s)
        rate = ledger.quota.read_bytes_per_second
        ledger.reads_s = _paid(ledger.reads_s, size_bytes, rate, now_s)

    def read_wait_s(self, tenant: str, now_s: float) -> float:
        """The time for which its next pull has to wait."""
        return max(0.0, self._ledger(tenant, now_s).reads_s - BURST_S - now_s)

    def _ledger(self, tenant: str, now_s: float) -> _Ledger:
        ledger = self._ledgers.get(tenant)
        if ledger is None:
            if len(self._ledgers) >= MAX_TENANTS:
                self._forget_paid(now_s)
            if len(self._ledgers) >= MAX_TENANTS:
                tenant = REST
            ledger = self._ledgers.setdefault(tenant, _Ledger(self._quota_of(tenant)))
        return ledger

    def _quota_of(self, tenant: str) -> Quota:
        return self._quotas.tenants.get(tenant, self._quotas.per_tenant)

    def _forget_paid(self, now_s: float) -> None:
        paid = [name for name, item in self._ledgers.items() if item.is_paid(now_s)]
        for name in paid:
            del self._ledgers[name]


def _paid(until_s: float, cost: float, rate: float, now_s: float) -> float:
    """When everything is paid for, ``cost`` included."""
    return max(until_s, now_s) + cost / rate if rate > 0 else 0.0
