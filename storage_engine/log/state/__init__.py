"""The state of a log besides its batches: producers, leader epochs, aborted transactions,
flushes."""
