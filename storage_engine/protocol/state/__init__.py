"""Records of the coordinators' topics, as bytes."""
