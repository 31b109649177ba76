"""What the tests of clients share beside the fake cluster: what its logs have, and coordinators."""
