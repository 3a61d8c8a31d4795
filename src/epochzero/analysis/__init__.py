"""Why a network scores as it does: the shape of its cell, of its loss, of its features and of its output."""
