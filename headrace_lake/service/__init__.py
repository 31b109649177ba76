"""The service that writes topics into tables."""
