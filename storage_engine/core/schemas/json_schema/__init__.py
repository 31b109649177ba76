"""JSON Schemas: what they demand, and what a reader of one can read of another."""
