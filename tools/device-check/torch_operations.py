"""PyTorch's time for the operations that `device-check --json` timed, on the same card, beside ours.

    python3 torch_operations.py figures.json

Each operation is what a plain PyTorch program does there. Where there is something to fuse, `torch.compile` gets the same
function; a single call of a library is what it is.
"""

import functools
import json
import statistics
import sys

import torch
import torch.nn.functional as F

LAUNCHES, ROUNDS = 10, 7
BUSY_CYCLES = 4_000_000
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def random(*shape, dtype):
    return torch.rand(shape, dtype=torch.float32, device="cuda").mul_(2).sub_(1).to(dtype)


def product(dtype, rows, columns, depth, then):
    x, weight, bias = random(rows, depth, dtype=dtype), random(columns, depth, dtype=dtype), random(columns, dtype=dtype)
    residual, scale = random(rows, columns, dtype=dtype), random(columns, dtype=dtype)
    after = {
        "Store": lambda y: y,
        "StoreF32": lambda y: y.float(),
        "Gelu": F.gelu,
        "SwiGlu": lambda y: F.silu(y[..., : columns // 2]) * y[..., columns // 2 :],
        "Add": lambda y: residual + y,
        "AddScaled": lambda y: residual + scale * y,
        # Its InstanceNorm is timed on its own.
        "Moments": lambda y: y,
    }[then]
    return lambda: after(F.linear(x, weight, bias))


def deconv(dtype, height, width, channels, columns):
    x = random(1, channels, height, width, dtype=dtype).to(memory_format=torch.channels_last)
    weight = random(channels, columns, 4, 4, dtype=dtype)
    return lambda: F.conv_transpose2d(x, weight, stride=2, padding=1)


def attention(dtype, tokens, heads, kv_heads, head_dim):
    q = random(1, heads, tokens, head_dim, dtype=dtype)
    k, v = random(1, kv_heads, tokens, head_dim, dtype=dtype), random(1, kv_heads, tokens, head_dim, dtype=dtype)
    return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)


def rotary(dtype, tokens, heads, kv_heads, head_dim):
    q, k = random(1, heads, tokens, head_dim, dtype=dtype), random(1, kv_heads, tokens, head_dim, dtype=dtype)
    weight = random(head_dim, dtype=dtype)
    sin, cos = random(tokens, head_dim, dtype=torch.bfloat16), random(tokens, head_dim, dtype=torch.bfloat16)

    def turn(x):
        x = F.rms_norm(x, (head_dim,), weight, 1e-6).bfloat16()
        low, high = x.chunk(2, -1)
        return (x * cos + torch.cat([-high, low], -1) * sin).to(dtype)

    return lambda: (turn(q), turn(k))


def norm(dtype, rows, columns, layer):
    x, weight, bias = random(rows, columns, dtype=dtype), random(columns, dtype=dtype), random(columns, dtype=dtype)
    if layer:
        return lambda: F.layer_norm(x, (columns,), weight, bias, 1e-6)
    return lambda: F.rms_norm(x, (columns,), weight, 1e-6)


def instance_norm(dtype, pixels, columns):
    x = random(1, columns, pixels, 1, dtype=dtype).to(memory_format=torch.channels_last)
    return lambda: F.silu(F.instance_norm(x, eps=1e-5))


OPERATIONS = {
    "Product": product,
    "Deconv": deconv,
    "Attention": attention,
    "Rotary": rotary,
    "Norm": norm,
    "InstanceNorm": instance_norm,
}


@torch.inference_mode()
def milliseconds(function):
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        # The card is busy while the launches are queued, so that it doesn't wait for them.
        torch.cuda._sleep(BUSY_CYCLES)
        before.record()
        for _ in range(LAUNCHES):
            function()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) / LAUNCHES)
    return statistics.median(times)


def fuses(kind, sizes):
    after = ("StoreF32", "Gelu", "SwiGlu", "Add", "AddScaled")
    return kind in ("Rotary", "Norm", "InstanceNorm") or sizes.get("then") in after


@functools.cache
def both(dtype, kind, sizes):
    """Eager and compiled. Compiling takes seconds, and networks share operations."""
    function = OPERATIONS[kind](dtype, **dict(sizes))
    eager = milliseconds(function)
    if not fuses(kind, dict(sizes)):
        return eager, eager
    # What was compiled before counts against a limit, beyond which nothing would be compiled any more.
    torch._dynamo.reset()
    return eager, milliseconds(torch.compile(function, dynamic=False))


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}; times are of one launch, in milliseconds")
    for precision in report["precisions"]:
        # Sums in float16 are an option of PyTorch's for whole programs; its default is compared.
        dtype = DTYPES["bf16" if precision["precision"] == "bf16" else "f16"]
        for network in precision["networks"]:
            ours_ms = torch_ms = compiled_ms = 0.0
            print(f"\n{network['network']}, {precision['precision']}")
            print(f"{'':<22}{'ours':>10}{'torch':>10}{'compiled':>10}{'torch/ours':>12}")
            for step in network["steps"]:
                (kind, sizes), = step["operation"].items()
                eager, compiled = both(dtype, kind, tuple(sorted(sizes.items())))
                step["torch_ms"], step["torch_compile_ms"] = eager, compiled
                ours_ms += step["times"] * step["ms"]
                torch_ms += step["times"] * eager
                compiled_ms += step["times"] * compiled
                print(f"{step['step']:<22}{step['ms']:>10.4f}{eager:>10.4f}{compiled:>10.4f}{eager / step['ms']:>12.2f}")
            network["torch_frame_ms"], network["torch_compile_frame_ms"] = torch_ms, compiled_ms
            print(f"{'a frame':<22}{ours_ms:>10.3f}{torch_ms:>10.3f}{compiled_ms:>10.3f}{torch_ms / ours_ms:>12.2f}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
