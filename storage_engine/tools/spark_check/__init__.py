"""The checks of `headrace spark-check`: whether Spark can use the format here, and how well."""
