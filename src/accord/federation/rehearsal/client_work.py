"""Times the work of a client: a few steps, and an upload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from accord.client.base import Client, Precision
from accord.client.make import make_client
from accord.client.summing import IMAGES, ROWS
from accord.client.training import Training
from accord.core.clock import Stopwatch
from accord.data.imageset import ImageSet
from accord.federation.rehearsal.speed import Speed
from accord.federation.tasks.base import release_memory
from accord.messages import Briefing, TrainingSpec, Upload
from accord.nets.inference import EVAL_BATCH
from accord.record.folders import RoundFolder

STEPS = 7  # steps that are timed, after one step to warm up
ENOUGH = 2.0  # seconds after which no further step is timed
SMALLER = 4  # a step is also timed with this fraction of a batch


@dataclass(frozen=True)
class ClientWork:
    """The work of one client that holds `data`; only its first images are used."""

    data: ImageSet
    briefing: Briefing
    name: str
    precision: Precision

    def measure(self, folder: RoundFolder) -> tuple[Speed, Upload]:
        """The speed of the client, and an upload that is as large as a real one."""
        trains = isinstance(self.briefing.header.training, TrainingSpec)
        step, image, look = self._step_costs() if trains else (0.0, self._cost_of_sums(), 0.0)
        spent = self._stopwatch()
        client = self._client(EVAL_BATCH if trains else ROWS)
        answer = spent.seconds
        if not trains:
            image = min(image, client.run_epoch()["seconds"] / len(client.data))
        spent = self._stopwatch()
        upload = client.upload()
        making = spent.seconds
        state = client.state()
        if state is not None:
            state.save(folder.state(self.name))  # because this needs memory too
        spent = self._stopwatch()
        sent = upload.to_bytes()
        speed = Speed(
            step=step,
            image=image,
            look=look,
            answer=answer,
            upload=spent.seconds + (0.0 if trains else making),
            upload_image=making / len(client.data) if trains else 0.0,
            upload_bytes=len(sent),
            width=upload_width(upload),
        )
        return speed, upload

    def _stopwatch(self) -> Stopwatch:
        return Stopwatch(self.precision.device.type)

    def _client(self, images: int) -> Client:
        """A client with a few images. The memory that is left of the one before does not count."""
        release_memory()
        return make_client(self.data.slice(0, images), self.briefing, self.name, self.precision)

    def _cost_of_sums(self) -> float:
        """The seconds of an image that is encoded and added to the sums, in a short warm-up."""
        client = self._client(IMAGES)
        return float(client.run_epoch()["seconds"]) / len(client.data)

    def _step_costs(self) -> tuple[float, float, float]:
        """(step, image, look): a step of n images takes step + n·image seconds, or n·look more."""
        batch = min(self.briefing.header.budget.batch, len(self.data))
        few = max(2, batch // SMALLER)
        looking, whole = self._step(batch, look=True), self._step(batch, look=False)
        look = max(0.0, looking - whole) / batch
        if few >= batch:
            return 0.0, whole / batch, look
        image = max(0.0, whole - self._step(few, look=False)) / (batch - few)
        return whole - batch * image, image, look

    def _step(self, images: int, *, look: bool) -> float:
        """The median of the seconds of a step, over a few epochs of one step each."""
        training = self._client(images)
        if not isinstance(training, Training):
            raise TypeError(f"a {type(training).__name__} has no steps")
        # The second stage of a recipe with two stages costs more than the first.
        training.epoch = training.asked.alignment_epochs
        training.looking = look
        first = float(training.run_epoch()["seconds"])
        seconds = list(_epochs(training, first)) or [first]
        return median(seconds)


def _epochs(training: Training, spent: float) -> Iterator[float]:
    """The seconds of some further epochs; of none if those before took long."""
    for _ in range(STEPS):
        if spent > ENOUGH or training.done:
            return
        seconds = float(training.run_epoch()["seconds"])
        spent += seconds
        yield seconds


def upload_width(upload: Upload) -> int:
    """The number of features of the client's net, or of its map."""
    name = "feature_sums" if "feature_sums" in upload.tensors else "class_means"
    return upload.tensors[name].shape[1]
