"""Tests of the storage engine; the folders mirror the package."""
