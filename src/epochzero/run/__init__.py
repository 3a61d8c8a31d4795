"""The loops that join spaces, engine and store."""
