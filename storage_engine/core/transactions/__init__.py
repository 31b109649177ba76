"""The transaction coordinator, and the commit protocol of the exactly-once sink in it."""
