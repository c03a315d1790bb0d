"""Delay levels and retries: messages that are parked now and delivered later."""
