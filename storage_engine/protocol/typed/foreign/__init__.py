"""Records of clients that know no columns, and rows of typed topics: what formats share."""
