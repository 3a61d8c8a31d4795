"""Features by layer and curves of outputs: what Dextr is made of, against Dextr's score and modules run by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.analysis.curves import dextr_of_each, output_curve, principal_components
from epochzero.analysis.features import layer_independence
from epochzero.data import from_tensors
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.space_networks import batch_for, network_of
from epochzero.errors import DegenerateError, UserError
from epochzero.plan import generator
from epochzero.registry import spaces
from tests.command import CHEAP, CUT

NB201 = spaces["nb201"]


def test_layers_add_up_to_the_score() -> None:
    batch = batch_for(NB201, "pink", size=2)
    network = network_of(NB201, NB201.parse(CHEAP), batch)
    features = layer_independence(network, batch.part(0)[0])
    score = ez.score(CHEAP, "fmi", space="nb201", data=batch)["fmi"]
    assert math.log1p(sum(feature.independence for feature in features)) == pytest.approx(score.value, rel=1e-6)
    assert features[0].name == "stem.conv" and features[0].kind == "conv" and features[0].channels == 16
    assert all(0 <= feature.independence <= 1 for feature in features)


def test_a_layer_by_hand() -> None:
    x = torch.randn(1, 3, 4, 4, generator=generator(0, "x"))
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(32, 2))
    (feature,) = layer_independence(ModuleNetwork(net, from_tensors(x)), x)
    with torch.no_grad():
        values = torch.linalg.svdvals(net[0](x)[0].flatten(1).double())
    assert feature.independence == pytest.approx(float(values[-1] / values[0]), abs=1e-6)
    assert (feature.kind, feature.channels) == ("conv", 2)


def test_a_linear_network_makes_an_ellipse_in_a_plane() -> None:
    net = nn.Linear(6, 4, bias=False)
    batch = from_tensors(torch.randn(2, 6))
    found = output_curve(ModuleNetwork(net, batch), batch, points=40)
    assert sum(found.explained[:2]) == pytest.approx(1) and found.explained[2] == pytest.approx(0, abs=1e-9)
    points = torch.tensor(found.points)
    a, b = points[:, 0].abs().max(), points[:, 1].abs().max()
    low, high = float(min(a, b) / max(a, b) ** 2), float(max(a, b) / min(a, b) ** 2)
    assert low * 0.9 < min(found.curvature) and max(found.curvature) < high * 1.1
    assert len(found.points) == len(found.curvature) == 40 and len(found.points[0]) == 3


def test_the_curve_bends_as_dextr_says() -> None:
    batch = batch_for(NB201, "pink", size=2)
    network = network_of(NB201, NB201.parse(CHEAP), batch)
    found = output_curve(network, batch, points=4)
    score = ez.score(CHEAP, "curvature", space="nb201", data=batch)["curvature"]
    assert math.log1p(sum(found.curvature) / 4) == pytest.approx(score.value, rel=1e-4)
    other = output_curve(network, batch, points=4, draw=1)
    assert other.curvature != found.curvature, "another circle"


def test_values_of_each_image_and_circle_average_to_dextr() -> None:
    batch = batch_for(NB201, "pink", size=3)
    network = network_of(NB201, NB201.parse(CHEAP), batch)
    values = dextr_of_each(network, batch, 3)
    score = ez.score(CHEAP, "dextr(repeats=3)", space="nb201", data=batch)["dextr(repeats=3)"]
    assert sum(values) / 3 == pytest.approx(score.value, rel=1e-5)
    assert len(set(values)) == 3


def test_values_of_the_authors_form() -> None:
    batch = batch_for(NB201, "pink", size=2)
    network = network_of(NB201, NB201.parse(CHEAP), batch)
    values = dextr_of_each(network, batch, 2, variant="reference")
    score = ez.score(CHEAP, "dextr(variant=reference)", space="nb201", data=batch)["dextr(variant=reference)"]
    assert values[0] == pytest.approx(score.value, rel=1e-5)
    assert values[1] != pytest.approx(values[0], rel=1e-3)


def test_principal_components_of_few_outputs() -> None:
    line = torch.arange(5.0, dtype=torch.float64)[:, None] * torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    projected, shares = principal_components(line)
    assert shares.tolist() == pytest.approx([1, 0, 0])
    assert (projected[:, 0] - projected[0, 0]).abs().tolist() == pytest.approx([0, 5, 10, 15, 20])
    assert not projected[:, 2].any()
    assert principal_components(torch.ones(4, 2, dtype=torch.float64))[1].tolist() == [0, 0, 0]


def test_what_cannot_be_is_refused() -> None:
    batch = batch_for(NB201, "pink", size=2)
    network = network_of(NB201, NB201.parse(CUT), batch)
    with pytest.raises(DegenerateError, match="no path connects them"):
        output_curve(network, batch, points=4)
    with pytest.raises(UserError, match="at least 4 points"):
        output_curve(network, batch, points=3)
    with pytest.raises(UserError, match="1 to 2"):
        dextr_of_each(network, batch, 3)
