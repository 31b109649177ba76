"""Avro data as Arrow columns: values of many records are decoded at once."""
