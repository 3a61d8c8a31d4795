"""Search spaces, one file each. A new space is a new file here."""
