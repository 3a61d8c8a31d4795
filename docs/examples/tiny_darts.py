"""A plug-in: the DARTS space at a size that two cores can train, five cells of four channels.

    epochzero search --plugin docs/examples/tiny_darts.py --space darts_tiny --method hnas --option metric=snip
        --option networks=12 --feedback "hnas(epochs=1,batch_size=64,images=2000)" --data cifar10.npz --batch-size 8
        --budget 8 --store tiny.db

Its architectures are those of `darts`: a genotype that is found here can be trained there at full size.
"""

from epochzero.registry import spaces
from epochzero.spaces.darts import Darts

spaces.register("darts_tiny", Darts("darts_tiny", channels=4, cells=5), origin=__name__)
