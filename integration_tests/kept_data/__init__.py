"""Files that releases of Headrace wrote, and the script that had them write these."""
