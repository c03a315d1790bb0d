"""Remoting over TCP: the server, the client, the pool of clients, and the splice."""
