"""What all clients know of consumer groups: who commits, the offsets that are committed."""
