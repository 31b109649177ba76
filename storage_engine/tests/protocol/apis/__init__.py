"""Tests of the messages of each API."""
