"""Tests of the files of the log."""
