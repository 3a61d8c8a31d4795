"""The table of everything that a proxy can read of a pass, with what each read requires.

The runner of one network (`epochzero.engine.single`) and that of a population (`epochzero.engine.population`), proxy
cards, the grouping by memory and the speed model all look up a read here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

RECTIFIERS = (
    "relu",
    "relu6",
    "leaky_relu",
    "prelu",
    "rrelu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "hardswish",
)
"""activations that pass positive inputs nearly unchanged and bend or remove negative ones"""

Stage = Literal["fact", "weights", "inputs", "forward", "backward", "curve"]
"""the last stage of the run: facts need none, `curve` is a forward run with derivatives along a circle"""


class Read(NamedTuple):
    """One read: its description and its requirements."""

    about: str
    stage: Stage
    of: Literal["", "layers", "trainable", "inputs"] = ""
    """the tensors that it holds or differentiates by: weights of conv and linear layers, all trainable parameters"""
    labels: bool = False
    """true if it requires labels"""
    stream: bool = False
    """true if a function maps each layer or block to something small"""
    input_of: tuple[str, ...] = ()
    """the ops whose inputs the stream gives"""
    output_of: tuple[str, ...] = ()
    """the kinds of layers whose outputs the stream gives"""
    backward: str | None = None
    """backward passes after that of the loss: one (""), one for each sample (B), logit (BK) or pair of blocks (L)"""
    per_sample: bool = False
    """true if a few samples at a time give the same where no layer mixes samples"""


TABLE = {
    "layers": Read("the output of each layer, in the order of the run", "forward", stream=True),
    "responses": Read(
        "the output of each conv, linear, norm and activation layer",
        "forward",
        stream=True,
        output_of=("conv", "linear", "norm", "activation"),
    ),
    "blocks": Read(
        "the output of each block of the network: the parts of the outermost part that has two of them",
        "forward",
        stream=True,
    ),
    "relus": Read(
        "the input of each ReLU and other rectifier: ReLU6, leaky ReLU, ELU, GELU, SiLU, hard swish and their like",
        "forward",
        stream=True,
        input_of=RECTIFIERS,
    ),
    "norms": Read("the input of each batch norm", "forward", stream=True, input_of=("batchnorm", "batch_norm")),
    "features": Read("the last output of a layer that has channels and positions", "forward", stream=True),
    "layer_gradients": Read(
        "each conv and linear layer, with the loss gradient of its output", "backward", "layers", True, True
    ),
    "block_gradients": Read(
        "for each two consecutive blocks with feature maps: the gradient at the output of the first when random signs "
        "are sent back from the output of the second, and those signs",
        "backward",
        "inputs",
        stream=True,
        backward="L",
    ),
    "logits": Read("the output [B, K]", "forward"),
    "loss": Read(
        "the mean cross-entropy with the labels (binary for a single logit), or the loss that the user names",
        "forward",
        labels=True,
    ),
    "labels": Read("the labels of the pass's samples", "inputs", labels=True),
    "weights": Read("the weights of conv and linear layers, in the network's order", "weights", "layers"),
    "gradients": Read(
        "the loss gradients of those weights: zeros where the loss does not depend on one. If all are zero, this read, "
        "`layer_gradients` and `hessian_gradients` have no value",
        "backward",
        "layers",
        True,
    ),
    "parameters": Read(
        "everything trainable, including biases and norms, in the network's order", "weights", "trainable"
    ),
    "parameter_gradients": Read("the loss gradients of those parameters", "backward", "trainable", True),
    "kernel_loss": Read(
        "[B, B] inner products of the samples' gradients over everything trainable: of each sample's loss",
        "backward",
        "trainable",
        True,
        backward="B",
        per_sample=True,
    ),
    "kernel_label": Read(
        "the same of the logit of each sample's label, or of its single logit",
        "backward",
        "trainable",
        True,
        backward="B",
        per_sample=True,
    ),
    "kernel_sum": Read(
        "the same of the sum of each sample's logits", "backward", "trainable", backward="B", per_sample=True
    ),
    "kernel_outputs": Read(
        "the same of every single logit [B*K, B*K]", "backward", "trainable", backward="BK", per_sample=True
    ),
    "hessian_gradients": Read(
        "H g for the weights of `weights`, with g their loss gradients and H the Hessian of the loss",
        "backward",
        "layers",
        True,
        backward="",
        per_sample=True,
    ),
    "log_gradients": Read("the gradients of log |sum(logits)| for those weights", "backward", "layers", backward=""),
    "input_gradients": Read(
        "the gradients of sum(logits) for each sample; no value where they are only rounding",
        "backward",
        "inputs",
        backward="",
    ),
    "velocity": Read("the first derivative of the logits along the circle on which the inputs lie", "curve"),
    "acceleration": Read("the second derivative of the logits along that circle", "curve"),
    "params": Read("the number of parameters", "fact"),
    "flops": Read("the number of multiply-accumulates", "fact"),
    "structure": Read("the layers and paths of the network, as `epochzero.engine.structure` has them", "fact"),
    "seed": Read("the seed of the weights' origin, for what a proxy draws itself", "fact"),
    "network": Read("the network itself and the pass's inputs, for proxies that run it themselves", "inputs"),
}
"""each read by its name"""

NAMES = frozenset(TABLE)
FACTS = frozenset(name for name, read in TABLE.items() if read.stage == "fact")
STREAMS = frozenset(name for name, read in TABLE.items() if read.stream)
KERNELS = frozenset(name for name in TABLE if name.startswith("kernel_"))
NEED_LABELS = frozenset(name for name, read in TABLE.items() if read.labels)
OF_CLASSES = frozenset(("labels", "kernel_label"))
"""reads that need one class for each sample, not targets of another loss"""
NEED_GRAPH = frozenset(name for name, read in TABLE.items() if read.stage == "backward")
NEED_FORWARD = NEED_GRAPH | {name for name, read in TABLE.items() if read.stage == "forward"}
FORWARD_STREAMS = STREAMS - NEED_GRAPH
"""streams that need no graph"""
OF_LAYERS = frozenset(name for name, read in TABLE.items() if read.of == "layers")
OF_TRAINABLE = frozenset(name for name, read in TABLE.items() if read.of == "trainable")
LOSS_GRADIENTS = (NEED_GRAPH & NEED_LABELS) - KERNELS
"""the reads of the backward pass of the loss"""
LAYER_LOSS_GRADIENTS = LOSS_GRADIENTS & OF_LAYERS
"""those that have no value where no conv or linear layer gets a gradient"""
PER_SAMPLE = frozenset(name for name, read in TABLE.items() if read.per_sample)
BACKWARD = {name: read.backward for name, read in TABLE.items() if read.backward is not None}
DESCRIBED = "\n".join(f"    {name:<{max(map(len, TABLE))}}  {read.about}" for name, read in TABLE.items())
"""the names and descriptions of all reads, one to a line"""
