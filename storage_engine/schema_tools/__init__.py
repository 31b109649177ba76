"""Programs of others that read schemas, in processes of their own."""
