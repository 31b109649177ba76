"""Records for a browser."""
