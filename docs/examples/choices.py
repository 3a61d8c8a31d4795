"""A space from a function, with a choice that exists for one kind of network only, and a front of it."""

from torch import nn

import epochzero as ez


class Patches(nn.Module):
    """Patches of an image, mixed by attention or by a linear layer."""

    def __init__(self, kind, width, heads=0, num_classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True) if heads else nn.Linear(64, 64)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        x = self.patches(x).flatten(2)  # [B, width, patches]
        x = self.mix(x).mT if isinstance(self.mix, nn.Linear) else self.mix(x.mT, x.mT, x.mT)[0]
        return self.head(x.relu().mean(1))


space = ez.choices(
    Patches,
    kind=["mixer", "attention"],
    width=[16, 24, 32],
    heads=lambda kind: [2, 4, 5] if kind == "attention" else [],  # 5 heads do not divide any width: a failure
)
print(f"{space.count()} networks, such as {space.text(space.smallest())}")
found = ez.search(space, "snip", budget=12, batch_size=8)
print(f"best {found.winner.text}; {sum(found.unscored.values())} cannot be built")
front = ez.search(space, objectives=["snip", "-flops"], budget=12, batch_size=8).members
for member in front:
    print(member.text, *(f"{value:.4g}" for value in member.values))
