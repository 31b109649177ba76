"""What Spark's queries have posted about their progress, in bounded memory."""
