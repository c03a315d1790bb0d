"""The admin API: HTTP and JSON for the operator and for people (models in gantry_protocol.admin).

``views`` shows the state, ``watch`` streams its changes, ``api`` answers, ``metrics`` counts.
"""
