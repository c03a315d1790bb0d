"""Filters in SQL92 on the properties of messages: text, tree, function; pure."""
