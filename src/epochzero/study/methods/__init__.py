"""Searches, one file each: ask for architectures, tell their merits. A new search is a new file here."""
