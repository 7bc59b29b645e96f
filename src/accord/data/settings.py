"""The section `data` of a study."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from accord.core.config import Config

ELSEWHERE = "elsewhere"  # the name of a study's data if all images are at the clients


class ImageConfig(Config):
    """The size and channels of the net's input. Images in other formats are converted."""

    size: int | None = Field(None, ge=4, le=1024)
    channels: Literal[1, 3] | None = None


class DataConfig(Config):
    """The dataset and the use of its images."""

    name: str = Field(
        ELSEWHERE,
        description="name of a known dataset, or folder, npz or parquet; elsewhere: only the "
        "clients have images",
    )
    path: str | None = Field(None, description="path of a folder, npz or parquet dataset")
    test_fraction: float | None = Field(
        None, gt=0, lt=1, description="fraction for the test, if a dataset has no test part"
    )
    public: float = Field(
        0.0, ge=0, lt=1, description="fraction of the training images that the server holds"
    )
    dealt: Literal["train", "public", "all"] = Field(
        "train",
        description="which images clients hold; public shows what the server can reach alone, all "
        "are both",
    )
    validation: float = Field(
        0.0, ge=0, lt=1, description="fraction held out to choose between settings"
    )
    test_per_client: float = Field(
        0.0, ge=0, lt=1, description="fraction of each client's images that it holds out as a test"
    )
    train_limit: int | None = Field(
        None, ge=1, description="number of training images, as a class-balanced subset"
    )
    test_limit: int | None = Field(
        None, ge=1, description="number of test images, as a class-balanced subset"
    )
    classes: tuple[str | int, ...] | None = Field(
        None, min_length=2, description="names or numbers of the classes to keep"
    )
    image: ImageConfig = ImageConfig()
    augment: str = Field(
        "auto", description="name of an augmentation set; auto means the dataset's default"
    )

    @field_validator("image", mode="before")
    @classmethod
    def _size_alone(cls, value: Any) -> Any:
        return {"size": value} if isinstance(value, int) else value

    @field_validator("name")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        from accord.data.known import DATASETS  # slow to import: it needs every format

        if value != ELSEWHERE:
            DATASETS.get(value)
        return value

    @field_validator("augment")
    @classmethod
    def _known_augmentation(cls, value: str) -> str:
        from accord.data.augmentations import augmentations

        if value != "auto":
            augmentations.get(value)
        return value
