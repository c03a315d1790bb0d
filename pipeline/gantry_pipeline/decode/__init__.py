"""From the bytes of a pack to Arrow tables, in NumPy: no Spark, no network, no files."""
