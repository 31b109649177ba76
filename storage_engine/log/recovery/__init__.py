"""From files to a log again, and what an unclean stop left."""
