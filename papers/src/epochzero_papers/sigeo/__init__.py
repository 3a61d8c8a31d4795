"""SiGeo."""
