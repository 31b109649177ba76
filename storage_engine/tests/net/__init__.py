"""Tests of the network layer."""
