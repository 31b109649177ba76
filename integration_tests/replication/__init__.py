"""What was acknowledged is there, whoever dies."""
