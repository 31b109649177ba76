"""A registry's schemas as a broker knows them: read from `_schemas`, never from the service."""
