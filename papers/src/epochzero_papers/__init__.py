"""Tables and figures of the papers, measured again: one file for each, `epochzero reproduce NAME`."""
