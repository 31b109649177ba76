"""What `headrace top` shows: reads the brokers' metrics, and makes rates of two readings."""
