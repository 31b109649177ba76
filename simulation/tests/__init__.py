"""Tests of the simulation, and what it finds."""
