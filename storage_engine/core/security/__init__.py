"""Who may do what: principals, access rules and the exchanges of SASL, without IO."""
