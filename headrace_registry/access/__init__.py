"""Who may see and change which subjects."""
