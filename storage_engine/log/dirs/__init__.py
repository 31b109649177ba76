"""The log dirs of a broker: which logs lie where, and moves between them."""
