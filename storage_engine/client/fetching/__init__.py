"""Record batches from leaders and replicas, by offset range, with fetches in flight."""
