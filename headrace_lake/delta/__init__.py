"""Tables of Delta Lake, through the library `deltalake`."""
