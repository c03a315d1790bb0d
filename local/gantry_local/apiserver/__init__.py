"""An API server on loopback: pure rules inside, aiohttp only at the edge.

``store`` keeps objects and history, ``ssa`` owns fields, ``schema``/``structural``/``validation``
know types, ``cel`` evaluates rules, ``registry`` composes them into verbs, ``http`` speaks HTTP.
"""
