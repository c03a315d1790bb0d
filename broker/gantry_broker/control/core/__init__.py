"""Choices about controllers, as plain functions of what is known of them."""
