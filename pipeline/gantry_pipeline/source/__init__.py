"""The tier as a Spark data source: objects, the manifest chain, partitions, batch and stream."""
