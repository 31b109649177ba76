"""What a log knows beside its batches: producers, leader epochs, aborted transactions, flushes."""
