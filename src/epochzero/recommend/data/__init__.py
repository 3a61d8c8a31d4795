"""Click tables: reading, encoding and batching."""
