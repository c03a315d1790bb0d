"""Names and Services without a network stack: a hosts file, and TCP proxies on loopback."""
