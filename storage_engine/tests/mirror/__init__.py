"""Tests of storage_engine.mirror."""
