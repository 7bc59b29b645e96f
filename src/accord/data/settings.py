"""The sections `data` and `shift` of a study."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from accord.core.config import Config

ELSEWHERE = "elsewhere"  # the name of a study's data if all images are at the clients


class ImageConfig(Config):
    """The size and channels of the net's input. Images in other formats are converted."""

    size: int | None = Field(None, ge=4, le=1024)
    channels: int | None = None

    @field_validator("channels")
    @classmethod
    def _grey_or_colour(cls, value: int | None) -> int | None:
        if value not in (None, 1, 3):
            raise ValueError("expected 1 (grey) or 3 (colour)")
        return value


class DataConfig(Config):
    """The dataset and the use of its images."""

    name: str = Field(
        ELSEWHERE,
        description="name of a known dataset, or folder, npz or parquet; elsewhere: only the "
        "clients have images",
    )
    path: str | None = Field(
        None, min_length=1, description="path of a folder, npz or parquet dataset"
    )
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


class ShiftConfig(Config):
    """How each client's images and labels differ from those of the dataset; 0 means not at all.

    The changes of images are applied in this order: a camera is turned, its lens blurs, its sensor
    has its own colours and its own noise.
    """

    rotation: float = Field(
        0.0, ge=0, le=180, description="largest angle of a client, in degrees to either side"
    )
    blur: float = Field(
        0.0, ge=0, le=32, description="largest standard deviation of a client's blur, in pixels"
    )
    colour: float = Field(
        0.0, ge=0, le=1, description="strength of a client's own contrast and brightness"
    )
    noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="largest standard deviation of a client's noise, as a share of the range",
    )
    scale: float = Field(
        1.0, ge=0, le=1, description="factor of the four strengths above, to change all at once"
    )
    labels: float = Field(
        0.0, ge=0, lt=1, description="share of a client's training labels that are wrong"
    )
    labels_at: float = Field(
        1.0, gt=0, le=1, description="share of the clients that have wrong labels"
    )

    @property
    def of_images(self) -> dict[str, float]:
        """Name → strength of each change of images, in order, without those of strength 0."""
        strengths = self.model_dump(exclude={"scale", "labels", "labels_at"})
        scaled = {name: self.scale * strength for name, strength in strengths.items()}
        return {name: strength for name, strength in scaled.items() if strength > 0}

    @property
    def changes_nothing(self) -> bool:
        return not self.of_images and not self.labels


NO_SHIFT = ShiftConfig()
