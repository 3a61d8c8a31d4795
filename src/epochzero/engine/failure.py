"""Why a pass, or one read of it, could not be had."""

from __future__ import annotations


class PassFailedError(Exception):
    """The message becomes `Score.why` of the proxies that need the pass or the read."""
