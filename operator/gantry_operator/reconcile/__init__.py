"""One look at one resource: observe, plan, apply."""
