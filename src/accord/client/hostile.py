"""A hostile client of a simulated federation: what it changes before it sends its upload."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from accord.attacks.base import Attack, make_attack
from accord.closed_form.sums import Sums
from accord.core.errors import ClientError
from accord.core.randomness import numpy_generator, torch_generator
from accord.data.imageset import ImageSet
from accord.messages import NET, Briefing, unprefixed
from accord.nets.inference import measure_batch_norms
from accord.nets.net import Net


@dataclass(frozen=True)
class Hostile:
    """What one hostile client does in one round."""

    attack: Attack
    name: str
    draws_as: str  # the client whose random draws it uses: its own, or those of one that it copies
    briefing: Briefing

    @classmethod
    def at(cls, briefing: Briefing, name: str) -> Hostile | None:
        """The hostile client `name`; None if the client is honest."""
        asked = briefing.header.attack
        if asked is None or name not in asked.hostile:
            return None
        return cls(make_attack(asked.name, asked.strength), name, asked.hostile[name], briefing)

    def images(self, data: ImageSet) -> ImageSet:
        """The client's images, with the labels that it works with."""
        header = self.briefing.header
        rng = numpy_generator(header.seed, self.name, "attack-labels")
        labels, sums = torch.from_numpy(data.labels), header.uploads == "sums"
        told = self.attack.labels(labels, len(header.classes), rng, sums=sums)
        return replace(data, labels=told.numpy())

    def net(self, trained: Net, data: ImageSet, steps: int, device: torch.device) -> Net:
        """The net that is sent; its batch norms have statistics that fit, and count `steps`.

        Layers that are never trained stay those of the briefing, or the server would refuse it. The
        client's own net is not changed.
        """
        start = unprefixed(NET, self.briefing.tensors)
        parameters = trained.named_parameters()
        learnt = {name: p.detach().cpu() for name, p in parameters if p.requires_grad}
        changed = self.attack.weights(learnt, start, self._draws())
        sent = copy.deepcopy(trained)
        if any(not torch.equal(tensor, learnt[name]) for name, tensor in changed.items()):
            with torch.no_grad():
                for name, parameter in sent.named_parameters():
                    if name in changed:
                        parameter.copy_(changed[name])
            measure_batch_norms(sent, data, self.briefing.header, device)
        for name, buffer in sent.named_buffers():
            if name.endswith("num_batches_tracked"):
                buffer.fill_(int(start[name]) + steps)
        if not all(bool(t.isfinite().all()) for t in sent.state_dict().values()):
            raise ClientError("the attack makes weights infinite. Set a smaller attack.strength.")
        return sent

    def sums(self, sums: Sums, said: Tensor) -> Sums:
        """The sums that are sent, with the counts that the client says."""
        found = self.attack.sums((sums.counts, sums.sums, sums.scatter), self._draws())
        return replace(Sums(*found), counts=said)

    def _draws(self) -> torch.Generator:
        header = self.briefing.header
        return torch_generator(header.seed, self.name, "attack", header.round)
