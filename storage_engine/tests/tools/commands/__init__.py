"""Commands by themselves."""
