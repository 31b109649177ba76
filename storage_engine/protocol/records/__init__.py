"""Record batches: their bytes, and their records as Arrow columns."""
