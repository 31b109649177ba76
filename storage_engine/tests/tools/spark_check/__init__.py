"""What `headrace spark-check` looks at."""
