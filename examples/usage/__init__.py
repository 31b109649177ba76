"""Where the format is used: a job for spark-submit."""
