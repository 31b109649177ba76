"""Tests of the znodes: their paths and their JSON."""
