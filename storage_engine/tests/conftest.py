"""See `shared_empties`."""

from storage_engine.tests.shared_empties import forbid_changes

forbid_changes()
