"""Published models of timm, by name. Needs the package timm; without it each model says so."""

import epochzero as ez

ranking = ez.rank(
    ["timm:resnet18", "timm:mobilenetv3_small_100", "timm:efficientnet_b0"],
    proxy="zen",
    input_shape=(3, 64, 64),
    classes=10,
    batch_size=4,
    seeds=2,
)
print(ranking.to_json()["networks"] if ranking.scored else ranking[0].why)
