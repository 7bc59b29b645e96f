"""The version of Flower that this version of Accord works with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from accord.core.errors import AccordError

TESTED = "1.41"  # Flower's interfaces change with every minor version


def require_flower() -> None:
    """Raises AccordError if Flower is missing, or if it is another version than the tested one."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise AccordError(
            "Flower is not installed. Install it with: pip install 'accord[flower]'"
        ) from None
    if not found.startswith(f"{TESTED}."):
        raise AccordError(
            f"expected Flower {TESTED}, which Accord was tested with; found {found}. Install it "
            "with: pip install 'accord[flower]'"
        )
