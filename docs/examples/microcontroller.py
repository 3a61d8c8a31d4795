"""A network for a microcontroller: 64 kB of flash for weights and 48 kB of RAM for activations, both in 8 bits."""

import epochzero as ez

limits = {"max_weight_bytes": "64k", "max_activation_bytes": "48k", "byte_width": 1}
found = ez.search("nats_sss", "rank(naswot,synflow)", budget=8, seed=1, batch_size=8, **limits)
print(found.winner.text)

# The memory that any runtime needs to classify one image: the weights, and the values alive at the worst moment.
memory = found.task.memory(found.winner.arch).facts(width=1)
print(f"{memory['weight_bytes']:,} bytes of weights, {memory['activation_bytes']:,} of activations")
assert memory["weight_bytes"] <= 64_000 and memory["activation_bytes"] <= 48_000

# Trained on your photos, with 8-bit ONNX whose accuracy is measured on the test images:
#   found.train("photos", folder="trained")
#   found.export("product", weights="trained", data="photos", also=["int8", "executorch"])
