"""Lite topics: who subscribes to which, as events and what follows from them. Pure."""
