"""Generated weights, as `sapiens bench` has them: both sides compute the same, and nothing is downloaded."""

import concurrent.futures
import math
import os

import torch

# Elements made at a time: all that there ever is in float32 beside a network in bfloat16.
PIECE = 1 << 20


def uniform(name, seed, first, count):
    """Elements `first` to `first + count` of a generated tensor: multiples of 2^-23 in [-1, 1), exact."""
    import numpy as np  # Not everywhere that networks are timed with other values.

    base = 0xCBF29CE484222325
    for byte in name.encode():
        base = (base ^ byte) * 0x100000001B3 % (1 << 64)
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(base ^ seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z >>= np.uint64(40)
    return z.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def scale_and_offset(name, shape):
    """What a generated tensor's uniform values are multiplied by, and what is added then."""
    if name.endswith(".bias"):
        return 0.1, 0.0
    if name.endswith(".weight") and len(shape) == 1:
        return (0.5, 0.0) if name.endswith(".gamma.weight") else (0.25, 1.0)
    if name.endswith(".weight"):
        fan = shape[0] * 4 if "deconv_layers" in name else math.prod(shape[1:])
        return math.sqrt(3 / fan), 0.0
    return 0.5, 0.0


def generate(network, seed):
    """Fills a network's parameters, straight in its own type."""
    import numpy as np

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, parameter in network.named_parameters():
            scale, offset = (np.float32(value) for value in scale_and_offset(name, parameter.shape))
            flat = parameter.view(-1)

            def values(first):
                return uniform(name, seed, first, min(PIECE, len(flat) - first)) * scale + offset

            firsts = range(0, len(flat), PIECE)
            for first, part in zip(firsts, pool.map(values, firsts), strict=True):
                flat[first : first + len(part)] = torch.from_numpy(part)
