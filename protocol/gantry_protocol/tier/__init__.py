"""Objects that a broker group keeps in an object store: names, packs, manifest versions, state.

Pure: bytes in, values out. The bytes are specified in ``docs/tier-format.md``.
"""
