"""Members of one group, by both protocols, and the topics that they read."""
