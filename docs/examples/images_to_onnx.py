"""From a folder of images to a network that ONNX Runtime serves: search, train, export, predict."""

from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import epochzero as ez

rng = np.random.default_rng(0)
for label, name in enumerate(["dark", "light"]):  # in place of your photos
    Path("photos", name).mkdir(parents=True)
    for number in range(32):
        pixels = rng.integers(0, 120, (32, 32, 3)) + 120 * label
        Image.fromarray(pixels.astype(np.uint8)).save(f"photos/{name}/{number}.png")

found = ez.search("nb201", "params", budget=4, data="photos", batch_size=8, image_size=32, max_params="300k")
print(found.winner.text)
trained = found.train("photos", epochs=1, batch_size=16, folder="trained")
print(f"accuracy {trained.history[-1]['test_accuracy']:.2f}")
found.export("product", weights="trained")

session = onnxruntime.InferenceSession("product/model.onnx")
batch = rng.standard_normal((2, 3, 32, 32)).astype(np.float32)
print("served", session.run(None, {session.get_inputs()[0].name: batch})[0].shape)
