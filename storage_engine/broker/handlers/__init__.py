"""A handler per API: turns one decoded request into one answer."""
