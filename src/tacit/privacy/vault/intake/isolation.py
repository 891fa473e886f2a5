"""Isolation of user code that runs on private records: withheld errors, no state left behind, secret random numbers.

Formal guarantees
  * `guarded` replaces what user code raises by a fixed sentence, without its cause and its frames, unless all records
    that the code has seen are declared public.
  * After `unchanged` (`reached.py`), the state that modules and functions reach is as before. Code that wrote to it
    (running statistics are raw sums of records) is refused; on synthetic rows already, if it does so there.
  * Inside `dice`, torch's generators start from a secret state of the step, so that a step with dropout or a noise
    layer gives the same result when it is repeated after a crash. The state is secret because the random numbers of a
    row depend on its position in the batch: if they were known, one record more or less would change other gradients.

Conditions: on the CPU the whole state of the generator (19,937 bits of Mersenne Twister) comes from the cipher under a
256-bit key; `manual_seed` would keep 32 bits of it. A CUDA generator is Philox with a 64-bit key, so there the random
numbers of a step have 64 secret bits. Neither generator is a cipher, and their outputs are not released.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn

from tacit.errors import TacitError, VaultError
from tacit.privacy.randomness.cipher import words
from tacit.privacy.vault.intake.reached import unchanged as unchanged

T = TypeVar("T")

_TWISTER = 624
"""Words of the state of Mersenne Twister."""


def guarded(
    work: Callable[[], T],
    what: str = "the model, loss, rule or feature map failed on private records",
    *,
    public: bool = False,
) -> T:
    """Runs user code, or a data source, on private records, and withholds its errors, which may quote the records.

    Errors that tacit's own code raises are passed on, without their cause and frames. On records that are declared
    public every error is passed on as it is, so that a lack of memory is seen as one.
    """
    if public:
        return work()
    own: BaseException | None = None
    try:
        return work()
    except KeyboardInterrupt:
        own = KeyboardInterrupt()
    except TacitError as error:
        own = error if _is_ours(error) else None
    except (Exception, SystemExit):
        pass
    # Outside of the handlers, so that the message is not kept as the context of the new error.
    if own is None:
        own = VaultError(
            f"{what}, and its message is withheld because it may quote them; try it on public data of the same shape"
        )
    own.__cause__ = own.__context__ = None
    raise own.with_traceback(None)


def _is_ours(error: TacitError) -> bool:
    """Whether tacit's own code raised an error, not a source or module that uses tacit's error classes."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "tacit"


def frozen(through: nn.Module) -> None:
    """Refuses a feature map that has a part in training mode, or a noise layer."""
    if any(module.training for module in through.modules()):
        raise VaultError("the feature map is in training mode; call .eval() on it, a map inside the vault is frozen")
    if is_random(through):
        raise VaultError("the feature map has a noise layer; use one that gives a record the same features every time")


def is_random(module: nn.Module) -> bool:
    """Whether a layer declares, by `random_in_eval`, that it is random in evaluation mode too."""
    return any(getattr(one, "random_in_eval", False) for one in module.modules())


def beside(module: object, rows: Tensor) -> Tensor:
    """The rows, on the device of a module's parameters, or of its buffers if it has no parameters."""
    held = next(chain(module.parameters(), module.buffers()), None) if isinstance(module, nn.Module) else None
    return rows if held is None else rows.to(held.device)


@contextmanager
def dice(module: nn.Module, key: bytes, step: int) -> Iterator[None]:
    """Sets torch's generators to a secret state of (key, step) inside it, and restores the caller's states.

    It is used for every module, because whether one draws random numbers (RReLU, functional dropout, a skipped block)
    cannot be seen.
    """
    devices = sorted({t.device.index or 0 for t in chain(module.parameters(), module.buffers()) if t.is_cuda})
    own = hashlib.blake2b(b"coins of a module", key=key, digest_size=32).digest()
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.set_state(twister_state(own, step))
        # One by one: torch.manual_seed would also leave the seed in the generators of other devices.
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(philox_seed(own, step))
        yield


def twister_state(key: bytes, step: int) -> Tensor:
    """The state of torch's CPU generator at a step; every word of it is from the cipher.

    torch stores, as bytes: the seed (unused from here on), the number of words before the next twist, whether it was
    seeded, the next position, the words (64 bits each, 32 in use), and cached normals (none).
    """
    drawn = words(key, step, _TWISTER).to(torch.int64) & 0xFFFFFFFF
    head = struct.pack("<QiiQ", 0, 1, 1, 0)
    like = torch.default_generator.get_state()
    state = torch.zeros_like(like)
    body = head + drawn.numpy().astype("<u8").tobytes()
    state[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
    return state


def philox_seed(key: bytes, step: int) -> int:
    """The 64-bit key of a CUDA generator at a step, from other words than the CPU's state."""
    drawn = words(key, step, 4, first=_TWISTER)
    return int.from_bytes(drawn[:2].numpy().tobytes(), "little")
