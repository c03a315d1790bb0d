"""The broker's side of the conversation with the controllers.

``requests`` makes and reads messages, ``peers`` keeps the connections, ``identity`` is who the
volume belongs to, ``agent`` joins them: register, heartbeat, poll, propose, hand over.
"""
