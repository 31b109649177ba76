"""What reads schemas with programs of others, in processes of their own."""
