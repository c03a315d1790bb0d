"""The tier: what a broker group keeps in an object store, and who uploads it.

``core`` is what is decided, with the upload role as a pure machine (import-linter checks it),
``stores`` are the object stores behind one small protocol. docs/tier-format.md has the bytes.
"""
