"""What is checked through an upgrade: a file for each feature."""
