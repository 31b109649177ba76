"""The rules for what a log keeps of its records and its producers: retention, compaction, sequence
numbers."""
