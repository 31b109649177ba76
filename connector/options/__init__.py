"""The options of the format, parsed once into typed values."""
