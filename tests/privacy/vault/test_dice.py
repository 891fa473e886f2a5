"""The coins of dropout and noise layers inside a step are secret with the whole key, and the same when it is redone."""

import torch
from torch import Tensor, nn

from tacit.privacy.vault.intake.isolation import dice, philox_seed, twister_state

KEY = bytes(range(32))
LAYER = nn.Dropout(0.5)


def thrown(key: bytes, step: int) -> Tensor:
    with dice(LAYER, key, step):
        return torch.rand(64)


def other(key: bytes, place: int) -> bytes:
    """The same key but for one bit of one byte."""
    return key[:place] + bytes([key[place] ^ 1]) + key[place + 1 :]


def test_a_step_that_is_redone_throws_the_same() -> None:
    assert torch.equal(thrown(KEY, 3), thrown(KEY, 3))
    assert not torch.equal(thrown(KEY, 3), thrown(KEY, 4))


def test_every_byte_of_the_key_counts() -> None:
    """Keys that share their first 4 or 8 bytes throw other coins: torch's own seed has 32 bits on the CPU."""
    first = thrown(KEY, 0)
    assert all(not torch.equal(first, thrown(other(KEY, place), 0)) for place in range(32))


def test_the_step_is_not_added_to_the_key() -> None:
    """Two grants whose keys are neighbours share no coins at other steps."""
    neighbour = KEY[:7] + bytes([KEY[7] + 1]) + KEY[8:]
    assert not torch.equal(thrown(KEY, 1), thrown(neighbour, 0))


def test_the_whole_state_of_the_generator_is_drawn() -> None:
    """All 624 words are the cipher's: none follows from a few of them, as it does after `manual_seed`."""
    state = twister_state(KEY, 0)
    words = state[24 : 24 + 8 * 624].view(torch.int64)
    assert int((words >> 32).abs().max()) == 0 and len(words.unique()) == 624
    seeded = torch.Generator().manual_seed(7).get_state()[24 : 24 + 8 * 624].view(torch.int64)
    step = [(1812433253 * (int(a) ^ (int(a) >> 30)) + n + 1) & 0xFFFFFFFF for n, a in enumerate(seeded[:-1])]
    assert step == seeded[1:].tolist(), "torch seeds each word by the one before"
    step = [(1812433253 * (int(a) ^ (int(a) >> 30)) + n + 1) & 0xFFFFFFFF for n, a in enumerate(words[:-1])]
    assert all(a != b for a, b in zip(step, words[1:].tolist(), strict=True))


def test_what_is_thrown_looks_uniform() -> None:
    with dice(LAYER, KEY, 0):
        rows = torch.rand(1_000_000)
        normals = torch.randn(1_000_000)
    assert abs(float(rows.mean()) - 0.5) < 0.002 and abs(float(rows.var()) - 1 / 12) < 0.001
    assert abs(float(normals.mean())) < 0.005 and abs(float(normals.std()) - 1) < 0.005


def test_the_callers_generator_stays_as_it_was() -> None:
    torch.manual_seed(5)
    before = torch.rand(3)
    torch.manual_seed(5)
    thrown(KEY, 0)
    assert torch.equal(before, torch.rand(3))


def test_a_gpu_gets_a_seed_of_64_bits() -> None:
    seeds = [philox_seed(other(KEY, place), 0) for place in range(32)]
    assert len({philox_seed(KEY, 0), *seeds}) == 33
    assert max(seeds) >= 2**56
