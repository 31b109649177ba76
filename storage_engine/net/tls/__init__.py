"""TLS: certificates and keys as settings name them, and the contexts that are made of them."""
