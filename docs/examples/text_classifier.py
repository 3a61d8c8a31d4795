"""Which Hugging Face model for my texts? Three classifiers with masks of padding, ranked from their configurations.

Needs the package transformers; without it the script says so. No weights are downloaded.
"""

import sys

import torch
from torch.utils.data import DataLoader

import epochzero as ez

try:
    import transformers
except ImportError:
    sys.exit("Models of Hugging Face need transformers: pip install transformers")

WORDS, LENGTH, CLASSES = 200, 16, 3
rows = []  # in place of what your tokenizer gives
for number in range(64):
    length = 4 + number % (LENGTH - 4)
    ids = torch.cat([torch.randint(1, WORDS, (length,)), torch.zeros(LENGTH - length, dtype=torch.long)])
    rows.append({"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": number % CLASSES})
loader = DataLoader(rows, batch_size=16, shuffle=True)


def bert(width, depth):
    def make(num_classes):
        sizes = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": 2 * width}
        config = transformers.BertConfig(vocab_size=WORDS, num_attention_heads=4, num_labels=num_classes, **sizes)
        return transformers.BertForSequenceClassification(config)

    return make


networks = {f"{depth} x {width}": bert(width, depth) for width, depth in ((16, 2), (32, 2), (32, 4))}
ranking = ez.rank(networks, loader, proxy="snip", seeds=2, latency="torch")
for row in ranking:
    sizes = f"{row.params:7,} parameters {row.flops:9,} FLOPs {row.latency}"
    print(f"{row.name:6} {sizes}  {row.value:.3f} ± {row.spread:.3f}")
