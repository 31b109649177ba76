"""`headrace bench clients`: nothing is downloaded, and no cluster is started."""
