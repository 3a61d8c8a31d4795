"""`python -m epochzero`: the command line."""

from epochzero.cli import main

main()
