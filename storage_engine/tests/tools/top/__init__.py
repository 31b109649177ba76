"""What `headrace top` shows."""
