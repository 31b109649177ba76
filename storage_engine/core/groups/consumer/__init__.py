"""Consumer groups of KIP-848: the coordinator assigns the partitions, and each member moves to its
target at its own pace."""
