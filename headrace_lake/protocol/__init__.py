"""What a commit to a table means, and when one may be made: values and decisions, without IO."""
