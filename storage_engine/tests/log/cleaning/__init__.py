"""Tests of compaction and of the repair of damage."""
