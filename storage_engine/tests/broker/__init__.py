"""Tests of storage_engine.broker."""
