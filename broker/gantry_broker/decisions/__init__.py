"""Steps of the replica core as plain data: recorded while it runs, taken again from a bundle; pure.

The machinery is the protocol's (``gantry_protocol.steps``), as the controllers' is; here is what
concerns replicas.
"""
