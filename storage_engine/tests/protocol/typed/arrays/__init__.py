"""Tests of the arrays of typed columns, and of their JSON."""
