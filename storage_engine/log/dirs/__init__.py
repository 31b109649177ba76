"""The log dirs of a broker: the places of logs, and moves between them."""
