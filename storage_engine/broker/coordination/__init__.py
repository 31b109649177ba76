"""Coordinators whose state is a log that they lead: what those of transactions and of groups
share."""
