"""Tests of what a log knows beside its batches."""
