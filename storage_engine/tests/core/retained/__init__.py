"""What logs keep, and what is known of producers."""
