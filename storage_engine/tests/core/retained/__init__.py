"""Tests of the rules for what a log keeps of its records and its producers."""
