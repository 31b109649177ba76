"""Which of several registries writes: a group of the protocol type `sr`."""
