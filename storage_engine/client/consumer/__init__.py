"""The consumer: alone or as a member of a group, from its positions to records and tables."""
