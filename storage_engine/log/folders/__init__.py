"""The data folders of a broker: which logs lie where, and moves between them."""
