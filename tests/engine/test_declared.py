"""Directions that are read from the files of proxies are those that the proxies have."""

from __future__ import annotations

import pytest

from epochzero.engine.declared import declared, directions
from epochzero.errors import UnknownNameError, UserError
from epochzero.registry import proxies


def test_directions_are_those_of_the_proxies() -> None:
    own = {name: proxies[name] for name in proxies if proxies.origins[name].startswith("epochzero.")}
    assert directions() == {name: proxy.higher_is_better for name, proxy in own.items()}


def test_a_stored_proxy_has_a_text_and_a_direction_and_computes_nothing() -> None:
    assert declared("ntk_cond( of=sum )").text == "ntk_cond(of=sum)"
    assert declared("ntk_cond(of=sum)").merit(3.0) == -3.0
    with pytest.raises(UserError, match="not computed here"):
        declared("naswot").compute()
    with pytest.raises(UnknownNameError, match="Did you mean 'naswot'"):
        declared("nawsot")
