"""The source: plans which offsets Spark reads, and reads them into Arrow record batches."""
