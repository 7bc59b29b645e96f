"""Small PNG images of examples."""

from __future__ import annotations

import io
from typing import Any

LARGEST = 64  # pixels on a side


def thumbnail(pixels: Any) -> bytes:
    """An image (H, W, C) of bytes as a small PNG."""
    from PIL import Image

    flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    image = Image.fromarray(flat)
    image.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()
