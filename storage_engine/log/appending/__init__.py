"""The end of a log: what is checked and prepared before batches are put there."""
