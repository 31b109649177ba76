"""Tests of segments and their indexes."""
