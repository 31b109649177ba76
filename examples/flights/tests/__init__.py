"""Tests of the flights example."""
