"""Quotas of tenants as people write them: what each namespace of topics may send and read."""

import msgspec

from gantry_protocol.errors import ConfigError


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The limits of one tenant; 0 is no limit.

    Attributes:
        sends_per_second: messages, those of batches counted one by one.
        send_bytes_per_second: of their bodies.
        read_bytes_per_second: of the records that pulls return.
    """

    sends_per_second: float = 0
    send_bytes_per_second: float = 0
    read_bytes_per_second: float = 0


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The quotas of a group.

    Attributes:
        per_tenant: of every tenant that is not named.
        tenants: of these, instead.
    """

    per_tenant: Quota = Quota()
    tenants: dict[str, Quota] = {}


_decoder = msgspec.json.Decoder(Quotas)


def parse_quotas(text: str) -> Quotas:
    """Quotas from JSON, as the setting `quotas` has them.

    Raises:
        ConfigError: says which part cannot be meant.
    """
    try:
        quotas = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"The quotas do not read: {error}") from error
    for name, quota in (("perTenant", quotas.per_tenant), *quotas.tenants.items()):
        if min(msgspec.structs.astuple(quota)) < 0:
            raise ConfigError(f"The quota of {name} has a negative number; 0 means no limit.")
    return quotas
