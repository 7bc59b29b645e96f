"""Backbones, which map images to features, one file per family. The registry finds them."""

from accord.nets.backbones.base import Encoder, backbones, build_encoder

__all__ = ["Encoder", "backbones", "build_encoder"]
