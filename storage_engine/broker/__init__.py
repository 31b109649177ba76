"""One broker: the replica manager, its fetchers, the controller it may be, and a handler per
API."""
