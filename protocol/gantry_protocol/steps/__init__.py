"""Steps of a core as plain data: kept while it runs, taken again from a bundle; pure (ADR 0109)."""
