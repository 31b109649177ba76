"""The HTTP server of the console: sessions, checks, routes."""
