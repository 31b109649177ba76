"""`headrace bench`: what it prints and leaves behind."""
