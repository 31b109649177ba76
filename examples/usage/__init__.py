"""Uses of the format, one in each file: spark-submit, a notebook, Spark Connect."""
