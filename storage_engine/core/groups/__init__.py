"""The group coordinator as a pure state machine: who is in a group, and what it has committed."""
