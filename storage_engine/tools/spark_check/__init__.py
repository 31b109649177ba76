"""What `headrace spark-check` looks at: whether Spark can use the format here, and how well."""
