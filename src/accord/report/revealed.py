"""What an upload tells the server about a client's images, in sentences."""

from __future__ import annotations

import torch

from accord.messages import CONTROL, Upload

FEW = 5  # a mean over fewer images is close to each of them


def revealed(upload: Upload) -> list[str]:
    """Everything that the server, and everyone who gets the file, can learn from an upload."""
    counts = upload.tensors.get("label_counts", torch.zeros(0, dtype=torch.int64))
    held = int((counts > 0).sum())
    told = [
        f"The client has {upload.header.samples:,} images, of {held} of {len(counts)} classes, and "
        "the exact number of each class."
    ]
    told += _of_sums(upload) if "feature_sums" in upload.tensors else _of_net(upload, counts)
    if upload.header.telemetry:
        epochs, last = len(upload.header.telemetry), upload.header.telemetry[-1]
        keys = [key for key, value in last.items() if key != "epoch" and value is not None]
        if keys:
            of = "its only epoch" if epochs == 1 else f"each of its {epochs} epochs"
            told.append(f"Figures of {of}: {', '.join(keys)}.")
    told.append("No image is in the file. There is no noise for differential privacy in it.")
    return told


def _of_net(upload: Upload, counts: torch.Tensor) -> list[str]:
    told = [
        "The weights of a net that was trained on its images. With them one can test whether a "
        "given image was among them, and can try to reconstruct typical images of a class. If the "
        "method visits clients in turn, the next client receives this net.",
    ]
    if "class_means" in upload.tensors:
        few = int(((counts > 0) & (counts < FEW)).sum())
        told.append(
            "The mean feature of each of its classes, and mean and spread of all features and "
            "scores."
        )
        if few:
            told.append(
                f"{few} of its classes have fewer than {FEW} images: their mean features are close "
                "to the features of individual images, and may reveal them."
            )
    if any(name.startswith(CONTROL) for name in upload.tensors):
        told.append("The change of its control variate, which is a mean gradient of its losses.")
    return told


def _of_sums(upload: Upload) -> list[str]:
    sums = upload.tensors.get("feature_sums")
    width = int(sums.shape[1]) if sums is not None else 0
    told = [
        f"The sum of the features of each class, and the sum of their products ({width} features). "
        "Features of individual images are not in the file.",
    ]
    if upload.header.samples < width:
        told.append(
            f"It has fewer images ({upload.header.samples:,}) than there are features ({width:,}): "
            "the sums then reveal the space that its features span, and may reveal individual "
            "images. Before it is sent, ask for a map with fewer features, or for secure "
            "aggregation with packing: float32 (docs/closed-form.md)."
        )
    return told
