"""Log-ins, and the rights to see and change subjects."""
