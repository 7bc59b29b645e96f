"""The section `data` of a study."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from accord.core.config import Config


class ImageConfig(Config):
    """The images a net sees; others are converted."""

    size: int | None = Field(None, ge=4, le=1024)
    channels: Literal[1, 3] | None = None


class DataConfig(Config):
    """Which images, and which of them serve what."""

    name: str = Field(description="a known dataset, or folder, npz, parquet")
    path: str | None = Field(None, description="where a folder, npz or parquet is")
    test_fraction: float | None = Field(None, gt=0, lt=1, description="of a set with no test part")
    public: float = Field(0.0, ge=0, lt=1, description="fraction taken out for the server")
    dealt: Literal["train", "public"] = Field(
        "train", description="which images clients hold; public: what the server could do alone"
    )
    validation: float = Field(0.0, ge=0, lt=1, description="fraction held out for choosing things")
    train_limit: int | None = Field(None, ge=1, description="class-balanced subset")
    test_limit: int | None = Field(None, ge=1, description="class-balanced subset")
    classes: tuple[str | int, ...] | None = Field(None, min_length=2, description="keep only these")
    image: ImageConfig = ImageConfig()
    augment: str = Field("auto", description="augmentation set; auto is the dataset's own")

    @field_validator("image", mode="before")
    @classmethod
    def _size_alone(cls, value: Any) -> Any:
        return {"size": value} if isinstance(value, int) else value

    @field_validator("name")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        from accord.data.known import DATASETS  # knows every format; slow to import

        DATASETS.get(value)
        return value

    @field_validator("augment")
    @classmethod
    def _known_augmentation(cls, value: str) -> str:
        from accord.data.augmentations import augmentations

        if value != "auto":
            augmentations.get(value)
        return value
