"""Proxies that are measured or swept together, by name."""

from __future__ import annotations

from epochzero.engine import Proxy, parse_list
from epochzero.engine.proxy import split_list
from epochzero.engine.reads import KERNELS
from epochzero.errors import UnknownNameError, UserError
from epochzero.objectives.auto import NAME, NEWEST, VERSIONS
from epochzero.registry import near_miss, proxies

FIRST = ("one batch", "four batches", "dextr", "synflow", "kernel")
"""bundles that are measured first, in case time runs out"""


def bundles() -> dict[str, str]:
    """Proxies that are measured together, by name."""
    quick = [name for name in proxies if proxies[name].quick]
    kernels = [name for name in proxies if any(KERNELS & set(need.reads) for need in proxies[name].needs)]
    return {
        NAME: ",".join(VERSIONS[NEWEST].scores),
        "one batch": "grad_norm,snip,plain,fisher,l2_norm,jacov,naswot",
        "four batches": "zico(batches=4),sigeo",
        "kernel": "ntk_cond,ntk_trace",
        "all quick": ",".join(quick),
        "all but kernels": ",".join(name for name in proxies if name not in kernels),
        "all": ",".join(proxies),
    }


def groups(only: str | None) -> dict[str, list[Proxy]]:
    """The rows asked for, by name: bundles or proxies; every one where nothing is said, but that with everything."""
    known = bundles()
    every = [*FIRST, *(name for name in known if name != "all"), *proxies]
    names = every if only is None else split_list(only)
    found = {}
    for name in names:
        try:
            found[name] = parse_list(known.get(name, name))
        except UnknownNameError as error:
            raise UserError(f"{error} Bundles: {', '.join(known)}.{near_miss(name, list(known))}") from None
    if not found:
        raise UserError(f"--only names nothing: give proxies or bundles, separated by commas ({', '.join(known)}).")
    return found
