"""Tests of the coordinators' records as bytes."""
