"""Pictures before a backbone: sizes, channels, constants, one record at a time."""

import pytest
import torch
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.models.preprocess import HALF, IMAGENET, Preprocess


def picture(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def test_what_has_the_size_is_only_normalised() -> None:
    x = picture(2, 3, 8, 8)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in IMAGENET)
    assert torch.allclose(Preprocess(8, IMAGENET)(x), (x - mean) / std)
    assert torch.allclose(Preprocess(8, HALF)(x), 2 * x - 1)


def test_a_grey_picture_is_repeated() -> None:
    x = picture(2, 1, 5, 5)
    assert torch.equal(Preprocess(12, HALF)(x), Preprocess(12, HALF)(x.repeat(1, 3, 1, 1)))


def test_a_picture_that_grows_is_plain_bicubic_within_its_range() -> None:
    x = (picture(1, 3, 6, 6) > 0.5).float()  # edges: bicubic swings beyond 0 and 1
    grown = functional.interpolate(x, (24, 24), mode="bicubic", align_corners=False)
    assert grown.max() > 1 and grown.min() < 0
    assert torch.allclose(Preprocess(24, HALF)(x), 2 * grown.clamp(0, 1) - 1)


def test_a_picture_that_shrinks_is_smoothed() -> None:
    """Fine stripes become grey; without smoothing they would become coarse ones."""
    stripes = torch.tensor([0.0, 1.0]).repeat(32).expand(1, 3, 64, 64)
    shrunk = Preprocess(9, HALF)(stripes)
    aliased = functional.interpolate(stripes, (9, 9), mode="bicubic", align_corners=False)
    assert shrunk.std() < 0.1 < (2 * aliased - 1).std()


def test_each_record_by_itself() -> None:
    x = picture(4, 3, 10, 7)
    together = Preprocess(16, IMAGENET)(x)
    assert all(torch.allclose(Preprocess(16, IMAGENET)(x[i : i + 1])[0], together[i], atol=1e-6) for i in range(4))


def test_the_key_tells_sizes_and_constants_apart() -> None:
    assert len({Preprocess(size, constants).key for size in (8, 9) for constants in (HALF, IMAGENET)}) == 4


@pytest.mark.parametrize("shape", [(90,), (2, 8, 8), (100, 3)])
def test_records_that_are_no_pictures_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=r"the-name reads pictures of shape \(1 or 3, height, width\), got .*file\.py"
    ):
        Preprocess(8, HALF).check("the-name", shape)


def test_a_size_is_a_whole_number() -> None:
    with pytest.raises(ConfigError, match="size must be a whole number >= 1, got 0"):
        Preprocess(0, HALF)
