"""One file per command of `headrace`; those of local clusters in a room of their own."""
