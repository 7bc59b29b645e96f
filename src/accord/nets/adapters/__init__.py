"""Parameter adapters of MergeNet, one file each. The registry finds them."""

from accord.nets.adapters.base import Adapter, adapters
from accord.nets.adapters.enrichment import Enrichment

__all__ = ["Adapter", "Enrichment", "adapters"]
