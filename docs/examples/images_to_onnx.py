"""From a folder of images to a network that ONNX Runtime serves: search, train, export, predict."""

import json
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
made = found.export("product", weights="trained", data="photos", also=["pixels"])
print("{} of {} test images right".format(*made.accuracy or (0, 0)))

# Where it is served: ONNX Runtime alone. Crop, size and normalisation are in the graph, names in its metadata.
session = onnxruntime.InferenceSession("product/pixels.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
with Image.open("photos/light/0.png") as photo:
    pixels = np.asarray(photo.convert("RGB").resize((45, 70)))[None]  # bytes [1, height, width, 3] of any size
(probabilities,) = session.run(["probabilities"], {"pixels": pixels})
print(f"served {classes[probabilities[0].argmax()]} {probabilities[0].max():.2f}")

# Or a whole folder: one line for each file.
ez.predict("product", "photos").write("predictions.csv")
print(Path("predictions.csv").read_text().splitlines()[0])
