"""The results of a population, by network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from epochzero.engine.population.columns import LayerValues, ResultColumns, Rows, of_each
from epochzero.engine.trace import PopulationTrace, Trace, each_layer, of_network


def piece(values: object, *members: tuple[int, int, int]) -> LayerValues:
    networks, orders, slots = (np.array(column) for column in zip(*members, strict=True))
    return LayerValues(values, networks, orders, slots)  # type: ignore[arg-type]


ONE, TWO = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0, 20.0, 30.0]])
"""values of two shapes"""


def some_rows() -> Rows:
    """Network 0: [3, 4], then [10, 20, 30]; network 1: nothing, [1, 2], [3, 4]; network 2 has no layers."""
    pieces = [piece(TWO, (0, 7, 0)), piece(ONE, (1, 5, 0), (0, 2, 1), (1, 6, 1)), piece(None, (1, 0, 0))]
    return Rows(3, pieces)


def total(values: Tensor) -> Tensor:
    return values.sum()


def traces(rows: Rows) -> list[PopulationTrace]:
    columns = ResultColumns(rows.size)
    columns.rows["layers", None] = rows
    columns.tensors["logits"] = torch.arange(6.0).view(3, 2)
    return [PopulationTrace(columns, p, {"layers": None, "logits": None}) for p in range(rows.size)]


def test_rows_come_in_each_network_s_order() -> None:
    rows = some_rows()
    first, second, third = (rows.of(p) for p in range(3))
    assert [v.tolist() for v in first] == [[3, 4], [10, 20, 30]]
    assert second[0] is None and [v.tolist() for v in second[1:]] == [[1, 2], [3, 4]]
    assert third == []


def test_functions_of_layers_and_networks_agree_with_one_network_alone() -> None:
    for trace in traces(some_rows()):
        alone = Trace({"layers": trace.layers, "logits": trace.logits})
        assert each_layer(total, [trace], "layers").tolist() == each_layer(total, [alone], "layers").tolist()
        assert of_network(total, trace, "logits") == of_network(total, alone, "logits")
    found = [each_layer(total, [trace], "layers").tolist() for trace in traces(some_rows())]
    assert found == [[7, 60], [3, 7], []]


def test_lists_of_layers_come_summed_and_none_where_there_is_nothing() -> None:
    same = Rows(3, [piece(ONE, (1, 0, 0), (1, 1, 0), (0, 0, 1))])
    first, second, third = traces(same)
    assert of_network(torch.clone, first, "layers").tolist() == [3, 4]
    assert of_network(torch.clone, second, "layers").tolist() == [2, 4]
    assert of_network(torch.clone, third, "layers") is None
    assert of_network(torch.clone, Trace({"layers": []}), "layers") is None


def test_one_layer_of_each_network_is_its_sum() -> None:
    assert Rows(2, [piece(ONE, (0, 3, 0), (1, 2, 1))]).totals is ONE
    assert Rows(2, [piece(ONE, (0, 3, 1), (1, 2, 0))]).totals.tolist() == ONE.flip(0).tolist()


def test_a_function_runs_once_for_the_population() -> None:
    calls = []

    def counted(values: Tensor) -> Tensor:
        calls.append(values.shape)
        return values.sum()

    for trace in traces(some_rows()):
        each_layer(counted, [trace], "layers")
    assert len(calls) == 2, "once for each shape"


def test_what_vmap_cannot_take_runs_row_by_row() -> None:
    def branching(values: Tensor) -> Tensor:
        return values.sum() if values[0] > 2 else -values.sum()

    (first, second, _) = traces(some_rows())
    assert each_layer(branching, [first], "layers").tolist() == [7, 60]
    assert each_layer(branching, [second], "layers").tolist() == [-3, 7]
    assert of_each([(ONE[0],), (TWO[0],), (ONE[1],)], branching).tolist() == [-3, 60, 7]


def test_values_that_are_reasons_are_said() -> None:
    reason = ValueError("no")
    rows = Rows(2, [piece([ONE[0], reason], (0, 0, 0), (1, 0, 1))])
    columns = ResultColumns(2)
    columns.rows["layers", None] = rows
    assert columns.refusals([("layers", None)]) == {1: reason}
    assert columns.read(("layers", None), 1) is reason
    with pytest.raises(AttributeError, match="not asked for 'weights'"):
        _ = PopulationTrace(columns, 0, {"layers": None}).weights
