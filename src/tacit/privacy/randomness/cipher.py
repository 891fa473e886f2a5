"""Secret random bits: the key streams of counter-based ciphers.

Formal guarantees
  * `words` and `chacha` are key streams of a 256-bit cipher. Without the key they cannot be distinguished from uniform
    bits.
  * A stream is a function of (key, counter), and streams of distinct counters do not overlap. So the coins and noise of
    a step can be derived again after a crash, and are never stored.

On the CPU the cipher is AES-256-CTR (`cryptography`, in hardware). On a GPU it is ChaCha20 in torch operations, so that
the bits need not cross the bus.
"""

import struct
from functools import lru_cache

import torch
from torch import Tensor

_ROUNDS = 10  # double rounds: ChaCha20 (RFC 8439)


def words(key: bytes, counter: int, n: int, first: int = 0, scratch: bytearray | None = None) -> Tensor:
    """Secret 32-bit words of an AES-256-CTR stream, on the CPU.

    Args:
        key: The 256-bit key.
        counter: The number of the stream.
        n: The number of words.
        first: The position of the first word; a multiple of 4.
        scratch: At least 4n bytes that hold the result, which is valid until they are used again.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if n == 0:
        return torch.empty(0, dtype=torch.int32)
    start = counter.to_bytes(8, "big") + (first // 4).to_bytes(8, "big")  # a block of the cipher is four words
    stream = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    out = bytearray(4 * n) if scratch is None else scratch
    stream.update_into(_zeros(4 * n), out)  # CTR mode: encrypting zeros gives the key stream itself
    return torch.frombuffer(out, dtype=torch.int32, count=n)


def encrypted(key: bytes, blocks: bytes) -> bytes:
    """AES-256 of each block of 16 bytes: a pseudorandom function of the block."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)


@lru_cache(maxsize=8)
def _zeros(n: int) -> bytes:
    return bytes(n)


def chacha_head(key: bytes, counter: int, device: torch.device) -> Tensor:
    """The initial state of a ChaCha20 key stream: constants, key and the 64-bit nonce `counter`."""
    head = struct.unpack("<14i", b"expand 32-byte k" + key + counter.to_bytes(8, "little"))
    return torch.tensor(head, dtype=torch.int32).to(device, non_blocking=True)


def chacha_int64(key: bytes, counter: int, place: int) -> int:
    """The signed 64-bit number at position `place` of a ChaCha20 stream, on the CPU."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    block, within = divmod(place, 8)
    nonce = block.to_bytes(8, "little") + counter.to_bytes(8, "little")
    stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(64))
    return int.from_bytes(stream[8 * within : 8 * within + 8], "little", signed=True)


def chacha(head: Tensor, n: int) -> Tensor:
    """`n` words of ChaCha20's key stream (n < 2³⁵), in torch operations on the device of `head`."""
    blocks = -(-n // 16)
    number = torch.arange(blocks, dtype=torch.int32, device=head.device)
    ends = torch.stack([number, torch.zeros_like(number)])
    fixed = head.unsqueeze(1).expand(14, blocks)
    state = torch.cat([fixed[:12], ends, fixed[12:]]).reshape(4, 4, blocks)
    return _block(state).reshape(16, blocks).t().reshape(-1)[:n]


def _block(state: Tensor) -> Tensor:
    a, b, c, d = state.unbind(0)
    for _ in range(_ROUNDS):
        a, b, c, d = _quarter(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # the diagonal round is a column round, rotated
        a, b, c, d = _quarter(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.stack([a, b, c, d]) + state


def _quarter(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _rotate(x: Tensor, by: int) -> Tensor:
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))  # >> is arithmetic on int32: mask the copied sign
