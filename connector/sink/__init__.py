"""The sink: writes rows to topics, a micro-batch as a whole and once."""
