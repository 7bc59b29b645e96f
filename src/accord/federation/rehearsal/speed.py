"""The measured cost of each kind of work, from which the cost of a whole study is computed."""

from __future__ import annotations

import math

from pydantic import Field

from accord.core.budget import Budget
from accord.core.config import Config


class Effort(Config):
    """The seconds of a merge, or of the start of a round, with few uploads and few images."""

    seconds: float
    clients: int  # number of uploads
    work: float  # `work` of the shortened rule or method with few public images; 0: it uses none

    def whole(self, clients: int, work: float, load: float) -> float:
        """The seconds with all clients' uploads, which take `load` seconds each, and all `work`."""
        longer = work / self.work if self.work else 1.0
        return self.seconds * longer + (clients - self.clients) * load


class Speed(Config):
    """The cost of one kind of work. Seconds are CPU time of one core, or wall time of a GPU."""

    step: float  # seconds of a step, besides those of its images
    image: float  # seconds of an image in a step
    look: float  # additional seconds of an image in a step that measures the gradients
    answer: float  # seconds of one client in a round, besides its epochs and its uploads
    upload: float  # seconds to make an upload, besides those of the images
    upload_image: float  # seconds of an image in the statistics of an upload
    upload_bytes: int
    width: int  # number of features
    load: float = 0.0  # seconds to read and check an upload
    forward: float = 0.0  # seconds of one net for one image that is measured
    merges: dict[str, Effort] = Field(default={})  # fusion → the making of its nets
    advance: Effort | None = None  # the start of the next round

    def training(self, images: int, budget: Budget) -> float:
        """The seconds of all epochs of a client with this number of images in one round."""
        steps = math.ceil(images / budget.batch)
        looks = max(1.0, steps / budget.look_every)
        epoch = steps * self.step + images * self.image + looks * self.look * images / steps
        return budget.epochs * epoch

    def answering(self, images: int, budget: Budget) -> float:
        """The seconds of a client in one round: its epochs and its uploads."""
        uploads = len(budget.checkpoints) * (self.upload + images * self.upload_image)
        return self.answer + self.training(images, budget) + uploads
