"""The jobs: each reads the ``tier`` source and leaves a table, a page or a verdict."""
