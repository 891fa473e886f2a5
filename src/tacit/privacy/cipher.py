"""Secret random bits: a counter-based cipher keyed by the vault.

Guarantee: `words` and `chacha` are the key stream of a 256-bit cipher at a place named by `counter`; without the
key it cannot be told from coin tosses, and the same (key, counter) always gives the same words, so a step can be
re-derived after a crash and never has to be stored. On the CPU the cipher is AES-256-CTR (hardware, through
`cryptography`); on a GPU it is ChaCha20, in torch operations, so that the bits need not cross the bus.
"""

import struct
from functools import lru_cache

import torch
from torch import Tensor

_ROUNDS = 10  # double rounds: ChaCha20 (RFC 8439)


def words(key: bytes, counter: int, n: int, first: int = 0, scratch: bytearray | None = None) -> Tensor:
    """`n` secret 32-bit words (AES-256-CTR, CPU), from word `first` (a multiple of 4) of the stream named `counter`.

    With `scratch` (at least 4n bytes) they lie in it, and are gone when it is used again.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if n == 0:
        return torch.empty(0, dtype=torch.int32)
    stream = Cipher(algorithms.AES(key), modes.CTR(_place(counter, first))).encryptor()
    out = bytearray(4 * n) if scratch is None else scratch
    stream.update_into(_zeros(4 * n), out)  # CTR mode: encrypting zeros gives the key stream itself
    return torch.frombuffer(out, dtype=torch.int32, count=n)


def encrypted(key: bytes, blocks: bytes) -> bytes:
    """AES-256 of each block of 16 bytes by itself: a pseudorandom function of the block."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)


def _place(counter: int, first: int) -> bytes:
    """CTR's first block: 64 bits of `counter`, 64 bits of block number; streams of distinct counters never overlap."""
    return counter.to_bytes(8, "big") + (first // 4).to_bytes(8, "big")


@lru_cache(maxsize=8)
def _zeros(n: int) -> bytes:
    return bytes(n)


def chacha_head(key: bytes, counter: int, device: torch.device) -> Tensor:
    """What a ChaCha20 key stream starts from: constants, key and the 64-bit nonce `counter`."""
    head = struct.unpack("<14i", b"expand 32-byte k" + key + counter.to_bytes(8, "little"))
    return torch.tensor(head, dtype=torch.int32).to(device, non_blocking=True)


def chacha_int64(key: bytes, counter: int, place: int) -> int:
    """The signed 64-bit number at `place` of the same stream, on the CPU."""
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
