"""One thread for each of pytest's processes: small networks gain nothing from more, and rounding stays the same."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
