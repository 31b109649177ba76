"""What a broker and its clients count while they work: plain numbers, which others read."""
