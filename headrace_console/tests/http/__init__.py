"""The server of the console: sessions, checks, routes."""
