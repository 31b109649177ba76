"""Tests of the native client."""
