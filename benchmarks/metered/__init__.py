"""What `headrace bench metrics` starts."""
