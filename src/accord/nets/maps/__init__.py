"""Fixed features φ: registered blocks, and the map that consists of them."""

from accord.nets.maps.base import Around, Block, Earlier, Origins, blocks
from accord.nets.maps.feature_map import FeatureMap, MapConfig, draw_map, made_up

__all__ = [
    "Around",
    "Block",
    "Earlier",
    "FeatureMap",
    "MapConfig",
    "Origins",
    "blocks",
    "draw_map",
    "made_up",
]
