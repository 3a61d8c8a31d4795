"""Contract checks that every proxy, space, search and op has to pass, ours and those of a plug-in.

    import pytest
    from epochzero.registry import proxies
    from epochzero.testing import check_proxy

    @pytest.mark.parametrize("name", sorted(proxies))
    def test_contract(name: str) -> None:
        check_proxy(name)

The checks of proxies, spaces and ops form populations on the CPU, as a GPU does by itself. Each check raises
AssertionError with a sentence that says which promise is broken.
"""

from epochzero.testing.ops import check_op
from epochzero.testing.proxies import check_proxy, check_same_in_another_process
from epochzero.testing.searches import check_search
from epochzero.testing.spaces import check_space

__all__ = ["check_op", "check_proxy", "check_same_in_another_process", "check_search", "check_space"]
