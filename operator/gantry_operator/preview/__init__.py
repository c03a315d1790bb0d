"""Answers for people before they change something: read from the API server, writing nothing."""
