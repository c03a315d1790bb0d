"""Soaks: a group under load for as long as somebody wants, and whether it kept its promises.

A soak does nothing to the group; whoever hurts it does that elsewhere, and asks the soak over HTTP
what a client noticed.
"""
