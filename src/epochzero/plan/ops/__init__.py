"""The ops that plans are made of, one file for each family. A new op is a new file here."""
