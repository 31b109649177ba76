"""What must stay true, and what must come once the faults are over."""
