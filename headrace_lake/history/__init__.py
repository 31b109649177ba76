"""Reads what a topic's table holds of its log, as the log gave it, also what retention took."""
