"""Files that earlier versions of Headrace wrote, and the script that had them write these."""
