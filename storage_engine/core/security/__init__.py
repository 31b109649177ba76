"""Principals, access rules and the exchanges of SASL, without IO."""
