"""A small causal language model: scored by the loss of the next token, in the form of a Hugging Face model.

The model returns a dictionary with `logits`, as those of `transformers.AutoModelForCausalLM.from_config(config)` do.
"""

import torch
from torch import nn

import epochzero as ez

VOCABULARY, CONTEXT = 100, 16


class Decoder(nn.Module):
    def __init__(self, width, layers, heads):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids):
        length = input_ids.shape[1]
        x = self.tokens(input_ids) + self.places(torch.arange(length, device=input_ids.device))
        mask = torch.full((length, length), -torch.inf, device=x.device).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return {"logits": self.head(x), "hidden_states": (x,)}


texts = torch.randint(VOCABULARY, (32, CONTEXT))  # in place of your tokens
scores = ez.score(Decoder(32, 2, 4), ["snip", "jacov", "epe_nas"], data={"input_ids": texts}, loss="next_token")
for name, score in scores.items():
    print(name, score.value if score.ok else score.why)

sizes = ez.choices(Decoder, width=[16, 32], layers=[1, 2], heads=lambda width: [2, 4] if width > 16 else [2])
found = ez.search(sizes, "grad_norm", budget=6, data={"input_ids": texts}, loss="next_token", max_params="30k")
print("found", found.winner.text)
