"""TLS of the ports for clients: the settings, the files they name, and contexts made from them."""
