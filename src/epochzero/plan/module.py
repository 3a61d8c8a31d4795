"""A plan as an ordinary `nn.Module`, for training, saving and export."""

from __future__ import annotations

from torch import Tensor, nn

from epochzero.plan.execute import execute, execute_both
from epochzero.plan.init import draw
from epochzero.plan.plan import Plan
from epochzero.types import Origin


class PlanModule(nn.Module):
    """Runs a plan with parameters and buffers of its own, named as in the plan."""

    def __init__(self, plan: Plan, origin: Origin) -> None:
        super().__init__()
        self.plan = plan
        for name, tensor in draw(plan.weights, origin).items():
            *path, leaf = name.split(".")
            block: nn.Module = self
            for step in path:
                if not hasattr(block, step):
                    block.add_module(step, nn.Module())
                block = block.get_submodule(step)
            if plan.weights[name].trainable:
                block.register_parameter(leaf, nn.Parameter(tensor.clone()))
            else:
                block.register_buffer(leaf, tensor.clone())

    def weights(self) -> dict[str, Tensor]:
        """Parameters and buffers by their names in the plan."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Returns the output; in training, a pair with the auxiliary output where the plan has one."""
        plan = self.plan.with_statistics("tracked" if self.training else "running")
        run = execute if plan.auxiliary is None or not self.training else execute_both
        return run(plan, self.weights(), inputs)
