"""The smallest script that does the demo's job, without signatures: what one_shot.py compares with.

python benchmarks/bare_infer.py IMAGE
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from PIL import Image

BUNDLE = Path(__file__).parents[1] / "edge_agent" / "demo" / "bundle"

image = Image.open(sys.argv[1]).convert("RGB")
width, height = image.size
scale = 256 / min(width, height)
image = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BICUBIC)
left, top = (image.width - 224) // 2, (image.height - 224) // 2
image = image.crop((left, top, left + 224, top + 224))
tensor = ((np.asarray(image, dtype=np.float32) - 127) / 128).transpose(2, 0, 1)[None]
session = ort.InferenceSession(
    BUNDLE / "weights" / "efficientnet-lite0-u8s8.onnx", providers=["CPUExecutionProvider"]
)
logits = session.run(None, {"input": tensor})[0][0]
scores = np.exp(logits - logits.max())
scores /= scores.sum()
labels = json.loads((BUNDLE / "labels.json").read_text())
for index in scores.argsort()[::-1][:5]:
    print(labels[index], round(float(scores[index]), 3))
