"""Where the format is used, one file each: spark-submit, a notebook, Spark Connect."""
