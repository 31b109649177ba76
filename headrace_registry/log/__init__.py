"""The topic `_schemas`: following it, and writing to it."""
