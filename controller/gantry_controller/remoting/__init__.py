"""The remoting side: requests in, events into the log, answers when they are applied.

``dispatcher`` finds the handler, the leader and the deadline of a request; ``control`` handles the
controller's codes, ``gantry_controller.nameserver`` the name service's. No request costs a task.
"""
