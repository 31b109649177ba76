"""The replacement of closed segments: compaction, scrubbing, and the repair of damage."""
