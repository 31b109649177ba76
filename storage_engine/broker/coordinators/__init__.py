"""Coordinators whose state is a log that this broker leads."""
