"""The progress that Spark's queries have posted, in bounded memory."""
