"""The rules of consumer groups of KIP-848."""
