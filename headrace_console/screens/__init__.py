"""What each screen of the console shows and changes, as JSON documents. Nothing here knows HTTP."""
