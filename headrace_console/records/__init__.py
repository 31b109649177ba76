"""Records for a browser: read within bounds, searched, cut and marked."""
