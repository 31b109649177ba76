"""Reads what a topic's table holds of it: records that retention took from the log, as the log gave them."""
