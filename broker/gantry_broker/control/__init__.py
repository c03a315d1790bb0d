"""The broker's side of the conversation with the controllers.

``requests`` makes and reads messages, ``peers`` keeps the connections, ``identity`` is who the
volume belongs to and ``joining`` how it came by that, ``agent`` joins them: register, heartbeat,
poll, propose, hand over.
"""
