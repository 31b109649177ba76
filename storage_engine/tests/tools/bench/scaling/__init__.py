"""The parts of `headrace bench scale` that need no process."""
