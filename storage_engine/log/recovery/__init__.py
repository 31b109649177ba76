"""The loading of a log from its files, and recovery after an unclean stop."""
