"""`headrace bench typed`: nothing is downloaded, and no broker runs."""
