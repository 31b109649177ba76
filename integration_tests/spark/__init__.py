"""Sources and sinks with a real Spark."""
