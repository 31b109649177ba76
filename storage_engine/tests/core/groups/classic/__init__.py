"""The rules of classic groups."""
