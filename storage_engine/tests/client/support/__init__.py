"""What the tests of clients share: a fake cluster, and what is in its logs."""
