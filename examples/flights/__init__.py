"""A year of departures through a replicated log and a Spark stream; a broker dies on the way."""
