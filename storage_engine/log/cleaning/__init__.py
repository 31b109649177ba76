"""Closed segments that are replaced: compaction, scrubbing, and the repair of damage."""
