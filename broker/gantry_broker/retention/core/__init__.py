"""Retention as plain functions of what is known of a log."""
