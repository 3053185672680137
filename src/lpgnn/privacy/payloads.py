"""Many reports at once: the layout of ``lpgnn.client`` on whole arrays.

What is accepted here and there is the same; messages come from the client alone.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from lpgnn.archive import Array
from lpgnn.client import CHECKSUM_BYTES, HEADER_BYTES, MAGIC, VERSION, Published

# Unpacked bits of a block of payloads; larger ones are read in parts.
_BLOCK_BITS = 2**25


@dataclass(frozen=True)
class Payloads:
    """Decoded payloads, and which of them keep to their ranges."""

    indices: Array  # [k, m] int32, ascending where valid
    signs: Array  # [k, m] int8: -1 or 1
    labels: Array  # [k] int32: a class; -1 where it was not asked for
    valid: Array  # [k] bool


def header(task: Published) -> bytes:
    """The bytes that every report of a task starts with."""
    return MAGIC + bytes([VERSION]) + task.hash


def crc32_of_rows(block: Array) -> Array:
    """CRC-32 of every row.  [k, n] uint8 -> [k] uint32"""
    crc = np.full(len(block), 0xFFFFFFFF, dtype=np.uint32)
    for column in block.T:
        crc = _CRC_TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return crc ^ np.uint32(0xFFFFFFFF)


# CRC-32 starts from and ends with a complement: that of the byte b ^ 0xFF is table[b] ^ 0xFF000000.
_CRC_TABLE = np.array(
    [zlib.crc32(bytes([b ^ 0xFF])) ^ 0xFF000000 for b in range(256)], dtype=np.uint32
)


def intact(task: Published, block: Array) -> Array:
    """Which rows have the task's header and a right checksum.  [k, size] uint8 -> [k] bool"""
    starts = (block[:, : len(header(task))] == np.frombuffer(header(task), np.uint8)).all(1)
    ends = block[:, -CHECKSUM_BYTES:].astype(np.uint32)
    stored = ends[:, 0] << 24 | ends[:, 1] << 16 | ends[:, 2] << 8 | ends[:, 3]
    found: Array = starts & (crc32_of_rows(block[:, :-CHECKSUM_BYTES]) == stored)
    return found


def split_rows(block: Array) -> tuple[Array, Array]:
    """The nodes and the payloads of intact reports.  -> [k] int64, [k, n] uint8"""
    numbers = block[:, HEADER_BYTES - 4 : HEADER_BYTES].astype(np.int64)
    nodes = numbers[:, 0] << 24 | numbers[:, 1] << 16 | numbers[:, 2] << 8 | numbers[:, 3]
    return nodes, block[:, HEADER_BYTES:-CHECKSUM_BYTES]


def read_payloads(task: Published, payloads: Array) -> Payloads:
    """Decode the payloads of many reports.  [k, n] uint8"""
    step = max(1, _BLOCK_BITS // (8 * task.payload_bytes))
    starts = range(0, len(payloads), step) or [0]
    parts = [_read_block(task, payloads[start : start + step]) for start in starts]
    if len(parts) == 1:
        return parts[0]
    return Payloads(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("indices", "signs", "labels", "valid")
        )
    )


def _read_block(task: Published, payloads: Array) -> Payloads:
    k, m, width = len(payloads), task.num_samples, task.index_bits
    bits = np.unpackbits(payloads, axis=1)  # [k, 8 n]
    ends = np.cumsum([m * width, m, task.label_bits])
    numbers, signs, codes, padding = np.split(bits, ends, axis=1)
    if width:
        indices = _numbers(numbers.reshape(k, m, width))
    else:
        indices = np.broadcast_to(np.arange(m, dtype=np.int32), (k, m))
    labels = _numbers(codes)
    valid = (indices < task.num_features).all(1) & (np.diff(indices, axis=1) > 0).all(1)
    valid &= (labels <= task.num_classes) & ~padding.any(1)
    labels = np.where(labels == task.num_classes, -1, labels)
    return Payloads(indices, 2 * signs.astype(np.int8) - 1, labels.astype(np.int32), valid)


def _numbers(bits: Array) -> Array:
    """Whole numbers from their bits, the most significant one first.  [..., w] -> [...]"""
    found = np.zeros(bits.shape[:-1], dtype=np.int32)
    for place in range(bits.shape[-1]):
        found = found << 1 | bits[..., place]
    return found
