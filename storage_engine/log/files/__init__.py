"""Files of the log: the disk below them, what is open and mapped, checkpoints, and room."""
