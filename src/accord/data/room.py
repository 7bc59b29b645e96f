"""Whether decoded images fit into the memory of this machine; asked before they are made."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accord.core.errors import AccordError
from accord.core.reading import megabytes, memory


def refuse_without_room(shape: Sequence[int], bytes_each: int, what: object) -> None:
    """Raises AccordError if an array of this shape would need more than half of the memory.

    The other half is for a copy of the images, which conversions need, and for the work itself.
    """
    needed, room = math.prod(shape) * bytes_each, memory() // 2
    if needed > room:
        sizes = "×".join(map(str, shape))
        raise AccordError(
            f"{what}: {sizes} values need {megabytes(needed)} of memory; this machine can give "
            f"{megabytes(room)} to images. Use fewer or smaller images (data.image), or another "
            "machine."
        )
