"""The content and the changes of each screen, as JSON documents. Nothing here depends on HTTP."""
