"""Quotas of clients: what they use, and how they are slowed down."""
