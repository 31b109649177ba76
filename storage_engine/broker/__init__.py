"""A broker: the replica manager and its fetchers, the controller when this broker is elected, and a
handler for each API."""
