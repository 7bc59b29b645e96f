"""Backbones: images → features. One file per family; the registry finds them."""

from accord.nets.backbones.base import Encoder, backbones, build_encoder

__all__ = ["Encoder", "backbones", "build_encoder"]
