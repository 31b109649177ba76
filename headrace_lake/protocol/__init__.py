"""The meaning of a commit to a table, and when one may be made: decisions without IO."""
