"""The files of the log: the disk interface, open and mapped files, checkpoints, and free space."""
