"""Which of five networks should I train? Ranked on the batches of a DataLoader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import epochzero as ez


def convnet(width, depth, act=nn.ReLU):
    """A function that makes the network: `rank` calls it for every draw of weights."""

    def make(num_classes):
        layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), act()]
        for _ in range(depth - 1):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), act()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

    return make


networks = {
    "narrow": convnet(4, 2),
    "wide": convnet(16, 2),
    "deep": convnet(8, 4),
    "wide, GELU": convnet(16, 2, nn.GELU),
    "linear": lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, num_classes)),
}
images, labels = torch.rand(256, 3, 16, 16), torch.arange(256) % 4  # in place of yours
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)

ranking = ez.rank(networks, loader, proxy="naswot", seeds=3)
for row in ranking:
    told = (
        f"{row.value:9.2f} ± {row.spread:.2f}  group {row.group}" if row.status == "ok" else f"{row.status}: {row.why}"
    )
    print(f"{row.name:12} {row.params or 0:6,} parameters {row.flops or 0:9,} FLOPs {told}")
print("\n".join(ranking.sentences))
