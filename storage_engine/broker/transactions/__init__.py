"""The transaction coordinators of a broker, and what partition leaders do for those of others."""
