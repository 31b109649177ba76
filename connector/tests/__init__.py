"""Unit tests of the connector: no broker and no Spark session."""
