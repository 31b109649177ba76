"""Quotas: how much a user, a client id or an address may take, and for how long it has to wait.

Source: KIP-13, KIP-55, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612.
"""
