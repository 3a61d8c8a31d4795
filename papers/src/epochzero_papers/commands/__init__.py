"""Commands that `epochzero` finds by the entry points of the group `epochzero.commands`."""
