r"""One training step: the loss and its gradients, on a GPU replayed from a CUDA graph.

Labels are probabilities t [B, classes], already smoothed and mixed. With logits z, those of the auxiliary tower a and
of a teacher z', and the recipe's weights u of the tower and w of the teacher:

    loss  = CE(t, z)
    whole = (1 - w) loss + w T^2 KL(softmax(z'/T) || softmax(z/T)) + u CE(t, a)

Hinton, Vinyals, Dean. Distilling the knowledge in a neural network. 2015. arXiv:1503.02531

The kernels of a small network run faster than Python launches them. All steps of a training have the same shapes, so
that a GPU can record forward and backward pass once as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epochzero.engine.gpu.graph import Captured, capture, warm_up
from epochzero.train.recipes import Recipe

Forward = Callable[[Tensor], Tensor | tuple[Tensor, Tensor]]
"""standardised images to logits [B, classes], or to the logits of the network and of its auxiliary tower"""


def soft_labels(y: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
    """Probabilities [B, classes] from labels, smoothed over the classes."""
    certain = torch.zeros(len(y), num_classes, device=y.device).scatter_(1, y[:, None], 1.0)
    return certain * (1 - smoothing) + smoothing / num_classes if smoothing else certain


class Step:
    """Runs forward and backward passes, and leaves gradients in the parameters."""

    def __init__(self, forward: Forward, module: nn.Module, recipe: Recipe, *, half: bool, record: bool) -> None:
        """`half`: use bfloat16 where it is safe. `record`: replay a CUDA graph, which needs equal shapes."""
        self.forward, self.recipe, self.half = forward, recipe, half
        self.parameters = list(module.parameters())
        self.recording = Recording(self._run, self.parameters, list(module.buffers())) if record else None

    def __call__(self, x: Tensor, target: Tensor, teacher: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The loss and the logits [B, classes]; `teacher` are the logits of a teacher."""
        given = (x, target) if teacher is None else (x, target, teacher)
        if self.recording is not None:
            return self.recording(given)
        _forget(self.parameters)
        return self._run(*given)

    def _run(self, x: Tensor, target: Tensor, teacher: Tensor | None = None) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            outputs = self.forward(x)
        logits, *tower = (z.float() for z in (outputs if isinstance(outputs, tuple) else (outputs,)))
        loss = F.cross_entropy(logits, target)
        whole = loss if teacher is None else _taught(loss, logits, teacher, recipe.distil, recipe.temperature)
        if tower:
            whole = whole + recipe.auxiliary * F.cross_entropy(tower[0], target)
        torch.autograd.backward(whole)
        return loss.detach(), logits.detach()


def _taught(loss: Tensor, logits: Tensor, teacher: Tensor, weight: float, temperature: float) -> Tensor:
    ours, theirs = F.log_softmax(logits / temperature, 1), F.log_softmax(teacher.float() / temperature, 1)
    distance = F.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return (1 - weight) * loss + weight * temperature**2 * distance


class Recording:
    """A run on a GPU that reads its inputs from the same places each time, and so does what it gives."""

    def __init__(
        self,
        run: Callable[..., tuple[Tensor, Tensor]],
        parameters: Sequence[nn.Parameter] = (),
        buffers: Sequence[Tensor] = (),
    ) -> None:
        """`parameters` are those that a run leaves gradients in, `buffers` what it changes."""
        self.run, self.parameters, self.buffers = run, parameters, buffers
        self.captured: Captured[tuple[Tensor, Tensor]] | None = None
        self.tried = False
        self.places: tuple[Tensor, ...] = ()

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        with torch.cuda.device(given[0].device):
            if not self.tried:
                self._record(given)
            if self.captured is None:
                _forget(self.parameters)
                return self.run(*given)
            for place, tensor in zip(self.places, given, strict=True):
                place.copy_(tensor)
            self.captured.replay()
        return self.captured.result

    def _record(self, given: Sequence[Tensor]) -> None:
        """Buffers, which warming up changes, are put back; gradients are made inside, so that each run writes them."""
        self.places = tuple(tensor.clone() for tensor in given)
        buffers = [(buffer, buffer.clone()) for buffer in self.buffers]
        warm_up(self._anew)
        _forget(self.parameters)
        for buffer, before in buffers:
            buffer.copy_(before)
        self.captured = capture(lambda: self.run(*self.places))
        self.tried = True

    def _anew(self) -> None:
        _forget(self.parameters)
        self.run(*self.places)


def _forget(parameters: Sequence[nn.Parameter]) -> None:
    """Drop the gradients of the step before."""
    for parameter in parameters:
        parameter.grad = None
