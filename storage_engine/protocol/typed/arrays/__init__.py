"""Arrow arrays of columns: judged, taken apart, written as messages and as text."""
