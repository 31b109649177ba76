"""Sockets: the server's event-loop connections, requests to other brokers, and the clients'
blocking connections.

Frames of bytes go in and out here; what they mean is decided above (`broker/`, `client/`).
"""
