"""Settings that people make, each defined once: name, type, range, default, text.

Rule protected: one setting has one name and one definition. The process inherits the fields
(`BrokerSettings`, `ControllerSettings`) and reads them as flags, variables and file keys
(`process.config`). The operator makes fields of its resources from the same definitions and checks
`spec.config` against them. A field of a resource is the setting of its path: `spec.tier.retryMaxMs`
is `tier_retry_max_ms`, and so `--tier-retry-max-ms` and `GANTRY_TIER_RETRY_MAX_MS`.
docs/settings.md is generated from here.

Not here: who a process is and where it listens, which is for the process and whoever starts it.
"""
