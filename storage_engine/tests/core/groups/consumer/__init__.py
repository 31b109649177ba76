"""The rules of consumer groups that speak KIP-848."""
