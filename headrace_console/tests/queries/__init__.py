"""What queries post."""
