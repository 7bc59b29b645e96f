"""Every number that an upload claims is compared with what is possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.checks import check_file, check_upload
from accord.checks.alike import digest_of_work, pairs_alike, refuse_alike
from accord.client.statistics import measure_client
from accord.client.training import Training
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.messages import NET, Briefing, Upload, prefixed
from accord.nets.backbones import Encoder
from accord.nets.limits import largest_pixels, limiting, limits_of_batch_norms
from tests_support import brief_for, images_of, train

CPU = torch.device("cpu")
HELD = [0] * 14 + [3] * 9 + [7]
BRIEFING = brief_for("fafi", epochs=2)
HONEST = train(images_of(HELD), BRIEFING, "0")
NORM = "net.encoder.stages.stage1.1"
Change = Callable[[dict[str, Tensor]], object]


def changed(change: Change, upload: Upload = HONEST) -> Upload:
    tensors = {name: tensor.clone() for name, tensor in upload.tensors.items()}
    change(tensors)
    return Upload(upload.header, tensors)


def with_header(**values: Any) -> Upload:
    return Upload(HONEST.header.model_copy(update=values), HONEST.tensors)


def refused(upload: Upload, briefing: Briefing = BRIEFING) -> str:
    with pytest.raises(AccordError) as caught:
        check_upload(upload, briefing, "here")
    assert str(caught.value).startswith("here")
    return str(caught.value)


def put(name: str, value: float, index: int | tuple[int, int] = 0) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name][index] = value

    return change


def times(factor: float, *names: str) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        for name in names:
            tensors[name].mul_(factor)

    return change


BAD: dict[str, tuple[Change, str]] = {
    "a mean cosine of −3": (put("score_mean", -3.0), "'score_mean' should hold cosines"),
    "a cosine of 1.01": (put("score_own", 1.01), "'score_own' should hold cosines"),
    "rotated": (put("score_rotated", -1.5), "'score_rotated' should hold cosines"),
    "a deviation above 1": (put("score_std", 1.2), "'score_std' should hold cosines"),
    "a deviation that no cosines have": (put("score_std", 0.99), "'score_std' should be at most"),
    "a cosine of features ≥ 0": (put("score_mean", -0.999), "'score_mean' should be a mean of"),
    "its own class far away": (
        lambda t: (put("score_std", 0.0)(t), put("score_own", float(t["score_mean"][0]) + 0.5)(t))[
            0
        ],
        "'score_own' should",
    ),
    "a class that it does not hold": (put("score_own", 0.5, 1), "'score_own' should be 0 for"),
    "a mean of such a class": (put("class_means", 0.5, (1, 0)), "'class_means' should be 0 for"),
    "another mean": (times(2.0, "feature_mean"), "'feature_mean' should be the mean of"),
    "other class means": (times(1.1, "class_means"), "'feature_mean' should be the mean of"),
    "negative features": (times(-1.0, "feature_mean", "class_means"), "ends with a ReLU"),
    "no variance": (times(0.0, "feature_var"), "'feature_var' is smaller than"),
    "a huge variance": (times(1e4, "feature_var"), "'feature_var' is larger than"),
    "huge moments": (
        times(1e9, "feature_mean", "class_means"),
        "the largest feature that the client's own weights can give",
    ),
    "a running mean": (put(f"{NORM}.running_mean", 1e3), "the client's own weights can give"),
    "a running variance": (put(f"{NORM}.running_var", 1e6), "the client's own weights can give"),
    "another answer to noise": (times(-1.0, "noise_feature"), "'noise_feature' should be"),
    "twice the answer to noise": (times(2.0, "noise_feature"), "'noise_feature' should be"),
    "too many steps": (
        lambda t: t[f"{NORM}.num_batches_tracked"].add_(1),
        "num_batches_tracked' should be 2: 2 steps",
    ),
    "a weight of 1e30": (put("net.head.prototypes", 1e30, (0, 0)), "should have a norm of at most"),
}


def test_an_honest_upload_is_accepted() -> None:
    check_upload(HONEST, BRIEFING, "here")


def test_impossible_statistics_are_refused() -> None:
    for what, (change, said) in BAD.items():
        assert said in refused(changed(change)), what


def test_impossible_headers_are_refused() -> None:
    events = HONEST.header.telemetry
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "another epoch": ({"epoch": 1}, "expected an upload after epoch 2"),
        "no telemetry": ({"telemetry": ()}, "expected telemetry of the epochs 1, 2"),
        "an epoch twice": ({"telemetry": (events[0], events[0])}, "found 1, 1"),
        "another order": ({"telemetry": events[::-1]}, "found 2, 1"),
        "NaN": ({"telemetry": ({**events[0], "loss": float("nan")}, events[1])}, "'loss' = nan"),
        "too large": ({"telemetry": ({**events[0], "loss": 1e41}, events[1])}, "'loss' = 1e+41"),
        "digits": ({"telemetry": ({**events[0], "loss": 10**400}, events[1])}, "'loss' = 1000"),
        "bool": ({"telemetry": ({**events[0], "loss": True}, events[1])}, "'loss' = True"),
        "many keys": (
            {"telemetry": ({**events[0], **{str(i): 0 for i in range(300)}}, events[1])},
            "expected at most 200 figures",
        ),
        "a long key": ({"telemetry": ({**events[0], "x" * 101: 0}, events[1])}, "found more"),
        "accuracy": ({"train_accuracy": 0.99}, "a whole number of 24 images"),
    }
    for what, (values, said) in bad.items():
        assert said in refused(with_header(**values)), what


def test_a_layer_that_is_never_trained_cannot_be_another_one() -> None:
    briefing = brief_for("ce-ensemble", backbone="white7", epochs=1)
    upload = train(images_of(HELD), briefing, "0")
    check_upload(upload, briefing, "here")
    told = refused(changed(times(1.001, "net.encoder.stages.stem.0.weight"), upload), briefing)
    assert "'net.encoder.stages.stem.0.weight' is fixed and should be that of the briefing" in told


def test_control_variates_and_adapters_are_limited() -> None:
    briefing = brief_for("fafi", epochs=1)
    control = {f"control.{n}": t for n, t in briefing.tensors.items() if n.endswith("prototypes")}
    named = {name.replace("net.", ""): tensor for name, tensor in control.items()}
    asked = Briefing(briefing.header, {**briefing.tensors, **named})
    good = train(images_of(HELD), briefing, "0")
    header = good.header.model_copy(update={"briefing": asked.digest})
    check_upload(Upload(header, {**good.tensors, **named}), asked, "here")
    huge = {name: torch.full_like(tensor, 1e30) for name, tensor in named.items()}
    assert "should have a norm of at most" in refused(
        Upload(header, {**good.tensors, **huge}), asked
    )


def test_honest_clients_of_all_kinds_are_accepted() -> None:
    """Backbones, recipes, one image, one class, few and many steps, large learning rates."""
    kinds: list[tuple[str, str, list[int], dict[str, Any]]] = [
        ("etf-balanced", "conv4", [4], {"epochs": 1, "batch": 1}),
        ("fedetf", "conv4", [2] * 20, {"epochs": 3, "batch": 7}),
        ("ce-ensemble", "resnet10-narrow", [0] * 5 + [1] * 6, {"epochs": 2, "lr": 5.0}),
        ("fedsra", "resnet10-narrow", HELD, {"epochs": 1, "weight_decay": 0.1}),
        ("fafi", "mobilenetv2", [0] * 4 + [9] * 4, {"epochs": 2, "clip": None}),
        ("queue-negatives", "conv4", HELD, {"epochs": 2, "lr": 1e-6}),
        ("kd", "conv4", HELD, {"epochs": 2, "momentum": 0.0}),
    ]
    for recipe, backbone, labels, budget in kinds:
        briefing = brief_for(recipe, backbone=backbone, **budget)
        upload = train(images_of(labels), briefing, "0")
        check_upload(upload, briefing, f"{recipe} {backbone}")


@settings(max_examples=15, deadline=None)
@given(
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 99),
)
def test_statistics_of_any_net_on_any_images_are_accepted(
    labels: list[int], scale: float, seed: int
) -> None:
    """The statistics are measured on random pixels, with prototypes and weights of any size."""
    briefing = brief_for("fafi", seed=seed, epochs=1, batch=64)
    draws = np.random.default_rng(seed)
    pixels = draws.integers(0, 256, (len(labels), 8, 8, 1), dtype=np.uint8)
    data = ImageSet(pixels, np.arange(len(labels)), np.array(labels, np.int64))
    client = Training(data, briefing, "0")
    client.run_epoch()
    with torch.no_grad():
        client.net.head.prototypes.mul_(scale)
        for module in client.net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.mul_(scale**0.25)
    accuracy, statistics = measure_client(client.net, data, briefing.header, CPU)
    made = client.upload()
    weights = prefixed(NET, client.net.state_dict())
    header = made.header.model_copy(update={"train_accuracy": accuracy})
    check_upload(Upload(header, {**made.tensors, **weights, **statistics}), briefing, "here")


def test_no_image_goes_beyond_the_limits_of_a_net() -> None:
    """In eval mode the features, and in training the inputs of every batch norm."""
    for backbone in ("conv4", "resnet10-narrow", "mobilenetv2"):
        briefing = brief_for("fafi", backbone=backbone, epochs=1)
        client = Training(images_of(HELD), briefing, "0")
        client.run_epoch()
        encoder, header = client.net.encoder, briefing.header
        assert isinstance(encoder, Encoder)
        pixels = largest_pixels(header.mean, header.std, 8, 8)
        assert pixels.flatten()[0] == pytest.approx(0.7 / 0.35)
        draws = torch.Generator().manual_seed(0)
        images = (torch.rand(32, 1, 8, 8, generator=draws).round() - 0.3) / 0.35
        with torch.inference_mode():
            assert bool((encoder.eval()(images).abs() <= limiting(encoder)(pixels)).all())
        limits, seen = limits_of_batch_norms(encoder, pixels), {}

        def look(name: str) -> Any:
            def note(_: Any, inputs: tuple[Tensor, ...], __: Any) -> None:
                seen[name] = inputs[0].square().mean(dim=(0, 2, 3)).sqrt()  # noqa: B023

            return note

        for name in limits:
            encoder.get_submodule(name).register_forward_hook(look(name))
        with torch.no_grad():
            encoder.train()(images)
        assert all(bool((seen[n] <= limits[n] * (1 + 1e-5) + 1e-9).all()) for n in limits), backbone


def test_the_same_work_under_two_names_is_refused() -> None:
    works = [("a", "1"), ("b", "2"), ("c", "1"), ("d", None), ("e", None)]
    assert pairs_alike(works) == [("a", "c")]
    assert pairs_alike(works, lambda _, __: True) == []
    with pytest.raises(AccordError, match=r"clients a and c sent the same weights or sums"):
        refuse_alike(works)
    other = train(images_of(HELD), BRIEFING, "1")
    digests = [digest_of_work(upload, BRIEFING) for upload in (HONEST, other)]
    assert len({*digests, None}) == 3
    renamed = with_header(client="2", train_accuracy=None)
    more = changed(put("score_std", 0.2), renamed)
    assert digest_of_work(more, BRIEFING) == digests[0]
    idle = Upload(HONEST.header, {**HONEST.tensors, **BRIEFING.tensors})
    assert digest_of_work(idle, BRIEFING) is None


def test_a_file_is_checked_again_after_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "upload.safetensors"
    HONEST.save(path)
    check_file(Upload.load(path), BRIEFING, path)
    check_file(Upload.load(path), BRIEFING, path, lambda *_: pytest.fail("checked twice"))
    changed(put("score_mean", -3.0)).save(path)
    with pytest.raises(AccordError, match="cosines"):
        check_file(Upload.load(path), BRIEFING, path)
