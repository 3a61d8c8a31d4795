r"""SynFlow: the signal flow through the network with every weight replaced by its absolute value.

    R     = sum of logits      weights replaced by their absolute values, input all ones, no batch norm
    score = log sum_l sum |W_l * dR/dW_l|
          = log |R| + log sum_l sum |W_l * d(log |R|)/dW_l|

The second form is the one computed: R itself reaches 1e60, the derivatives of its logarithm stay near one. The
published codes disagree on whether to take the logarithm; ranks are the same.

Options:
    norm        off, or train to keep batch norms, with the statistics of the one sample

Beware: norms are removed, so it scores another network than the one that will be trained. Flow is a product over
layers: depth and width dominate. Weak on NAS-Bench-301 (.18, SiGeo's Table 2). A flow beyond 1e308 has no score.

Beware: with norm=train it orders NAS-Bench-1Shot1 the wrong way (-.42 to -.69, with norm=off .34 to .71). NASI's
Table 3 has -.45 to -.53 for SynFlow: very probably that form.

Beware: layer norms stay, and batch norms with `norm=train`. A norm takes the mean away, so signals of both signs meet
and R may be negative: the sum is then that of the formula, but no flow, and depends on the draw of the weights.

Tanaka, Kunin, Yamins, Ganguli. Pruning neural networks without any data by iteratively conserving synaptic flow.
NeurIPS 2020. arXiv:2006.05467
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, of_network, proxy
from epochzero.engine.passes import Norm
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.snip import felt

POSITIVE = Pass(inputs="ones", weights="absolute", norm="off", dtype="float64")


def needs(norm: str) -> Sequence[Need]:
    if norm not in ("off", "train"):
        raise UserError(f"synflow takes norm=off or norm=train, not {norm!r}.")
    return [need(replace(POSITIVE, norm=cast(Norm, norm)), "weights", "log_gradients", "logits")]


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
# recipe 3: a negative sum of logits, as after layer norms, has a score too
@proxy(needs=needs, higher_is_better=True, tf32=("nb101",), recipe=3)
def synflow(trace: Trace, *, norm: str = "off") -> Tensor:
    flow: Tensor = of_network(torch.sum, trace, "logits").abs()  # []
    if not torch.isfinite(flow):
        raise DegenerateError("the flow exceeds what double precision holds (1e308)")
    if flow == 0:
        raise DegenerateError("no signal flows from the input to the output")
    share = each_layer(felt, [trace], "weights", "log_gradients").sum()  # [L] -> []
    if share <= 0:
        raise DegenerateError("no signal flows from the input to the output")
    return flow.log() + share.log()
