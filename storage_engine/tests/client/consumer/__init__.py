"""The consumer and its membership."""
