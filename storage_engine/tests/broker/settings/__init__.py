"""Settings, as files and at run time."""
