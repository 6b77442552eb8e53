#!/usr/bin/env python3
"""Compares the processor's kernels with PyTorch: one machine, one run, the same generated weights and input.

    cargo build --release --bin sapiens
    python3 -m pip install -r tools/peer_bench_requirements.txt
    python3 tools/peer_bench.py --check
    python3 tools/peer_bench.py --variant sapiens2-0.4b --input 384x512

Ours is `sapiens bench`, a process a round. A peer is PyTorch with a network written here for this purpose, or
transformers' own; it is one process for all rounds, which loads once, sleeps while ours runs, and runs one
frame unmeasured in every round, as ours does. The rounds alternate: ours, peer, ours, peer. One peer lives at
a time, so a ratio is of medians taken from the same minutes.

OpenMP's threads sleep where they have nothing to do (OMP_WAIT_POLICY=PASSIVE, unless the environment says
otherwise). On a machine that does nothing else PyTorch may be faster with ACTIVE; on a busy one it is far
slower.

`--check` holds the peers against the reference activations in tests/data instead of timing them: a peer that
computes something else is no peer. Needs Python 3.11 or newer.
"""

import argparse
import concurrent.futures
import datetime
import importlib
import itertools
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARDS = ROOT / "model" / "cards"
DATA = ROOT / "tests" / "data"

# Seed of the weights, as `sapiens bench` has it.
SEED = 3
# Seed of the tensor `input`, as the full-size references have it. The values don't change what a frame takes.
INPUT_SEED = 9
PRECISIONS = ("bf16", "f32")
PEERS = tuple(
    f"{kind}-{precision}" for kind in ("torch", "torch-compile", "transformers") for precision in PRECISIONS
)
PREFIX_TOKENS = 9
PATCH = 16


class CannotRun(Exception):
    """Says why one side can't be measured. It becomes a line of the table, not an end of the run."""


# Cards ------------------------------------------------------------------------------------------------------


def variants():
    """The built-in variants' names, each with its card's path."""
    paths = sorted(CARDS.glob("*.toml"))
    return {path.stem if not path.stem.startswith("sapiens-") else path.stem[8:]: path for path in paths}


def read_card(path):
    """A model card as a dict, with the number of classes added."""
    with open(path, "rb") as file:
        card = tomllib.load(file)
    card["network"]["classes"] = int(card["classes"].rsplit("-", 1)[1])
    return card


def kv_heads_per_layer(dims):
    """Key/value heads of the second family's layers: all in the first and last few, half between them."""
    layers, full, heads = dims["layers"], dims["full_kv_layers"], dims["heads"]
    return [heads if i < full or i >= layers - full else heads // 2 for i in range(layers)]


def weights_mib(card, precision):
    """What a network's matrices take, in MiB. All other weights are few."""
    dims = card["network"]
    dim, hidden = dims["embed_dim"], dims["ffn_dim"]
    if card["family"] == "sapiens2":
        shares = [kv_heads / dims["heads"] for kv_heads in kv_heads_per_layer(dims)]
        count = sum(dim * dim * (2 + 2 * share) + 3 * dim * hidden for share in shares)
    else:
        count = dims["layers"] * (4 * dim * dim + 2 * dim * hidden)
    channels = [dim, *dims["deconv_channels"]]
    count += sum(16 * a * b for a, b in itertools.pairwise(channels))
    return count * (2 if precision == "bf16" else 4) / (1 << 20)


def status_mib(field, file="/proc/self/status"):
    """A figure that Linux gives in kB, in MiB; none elsewhere."""
    try:
        with open(file, encoding="ascii") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def expect_memory(variant, precision, processes):
    """Refuses weights that don't fit: running out of memory would end more than this script."""
    needed = processes * (weights_mib(read_card(variants()[variant]), precision) + 1024)
    available = status_mib("MemAvailable", "/proc/meminfo")
    if available is not None and needed > available:
        who = "both sides need" if processes == 2 else "it needs"
        raise CannotRun(
            f"{who} about {needed / 1024:.1f} GiB of memory, {available / 1024:.1f} GiB are available"
        )


# Generated weights ------------------------------------------------------------------------------------------


def uniform(name, seed, first, count):
    """Elements `first` to `first + count` of a generated tensor: multiples of 2^-23 in [-1, 1), exact."""
    import numpy as np

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
    u = z.astype(np.float32)
    u *= np.float32(2.0**-23)
    u -= np.float32(1)
    return u


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


def fill(name, tensor, seed, pool):
    """Fills a contiguous tensor of any float type with its generated values, a piece at a time."""
    import numpy as np
    import torch

    piece = 1 << 20
    scale, offset = (np.float32(value) for value in scale_and_offset(name, tensor.shape))
    flat = tensor.detach().view(-1)

    def values(first):
        u = uniform(name, seed, first, min(piece, flat.numel() - first))
        u *= scale
        u += offset
        return u

    firsts = range(0, flat.numel(), piece)
    for first, part in zip(firsts, pool.map(values, firsts), strict=True):
        flat[first : first + len(part)] = torch.from_numpy(part)


# The peers' networks ----------------------------------------------------------------------------------------


def new_network(card):
    """A card's network as a `torch.nn.Module` whose parameters have the checkpoints' names.

    Its classes are defined in here so that only a peer's process imports PyTorch. A network maps
    `[1, 3, H, W]` to logits; `prepare(H, W)` computes once, from the weights, what depends on the size alone.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    class PatchEmbed(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.projection = nn.Conv2d(3, dim, PATCH, PATCH)

        def forward(self, image):
            return self.projection(image).flatten(2).transpose(1, 2)

    class Head(nn.Module):
        def __init__(self, dim, deconv_channels, conv_channels, classes):
            super().__init__()
            layers = []
            for channels in deconv_channels:
                layers.append(nn.ConvTranspose2d(dim, channels, 4, stride=2, padding=1, bias=False))
                layers += [nn.InstanceNorm2d(channels), nn.SiLU(inplace=True)]
                dim = channels
            self.deconv_layers = nn.Sequential(*layers)
            layers = []
            for channels in conv_channels:
                layers += [nn.Conv2d(dim, channels, 1), nn.InstanceNorm2d(channels), nn.SiLU(inplace=True)]
                dim = channels
            self.conv_layers = nn.Sequential(*layers)
            self.conv_seg = nn.Conv2d(dim, classes, 1)

        def forward(self, features):
            return self.conv_seg(self.conv_layers(self.deconv_layers(features)))

    class Network(nn.Module):
        """Both families: a backbone that gives `[1, h * w, D]`, and the head."""

        def __init__(self, backbone, card):
            super().__init__()
            dims = card["network"]
            self.grid = None
            self.backbone = backbone(card)
            self.decode_head = Head(
                dims["embed_dim"], dims["deconv_channels"], dims["conv_channels"], dims["classes"]
            )

        def prepare(self, height, width):
            self.grid = (height // PATCH, width // PATCH)
            self.backbone.prepare(*self.grid)

        def forward(self, image):
            tokens = self.backbone(image)
            # A view, and already in the channels-last order that the convolutions are fastest in.
            return self.decode_head(tokens.transpose(1, 2).unflatten(2, self.grid))

    # First family.

    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(dim, 3 * dim)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    class FeedForward(nn.Module):
        def __init__(self, dim, hidden):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Sequential(nn.Linear(dim, hidden), nn.GELU()), nn.Linear(hidden, dim)
            )

        def forward(self, x):
            return self.layers(x)

    class Layer(nn.Module):
        def __init__(self, dim, heads, hidden):
            super().__init__()
            self.ln1 = nn.LayerNorm(dim, eps=1e-6)
            self.attn = Attention(dim, heads)
            self.ln2 = nn.LayerNorm(dim, eps=1e-6)
            self.ffn = FeedForward(dim, hidden)

        def forward(self, x):
            x = x + self.attn(self.ln1(x))
            return x + self.ffn(self.ln2(x))

    class Sapiens(nn.Module):
        def __init__(self, card):
            super().__init__()
            dims = card["network"]
            dim = dims["embed_dim"]
            self.trained_grid = (card["input"]["height"] // PATCH, card["input"]["width"] // PATCH)
            self.patch_embed = PatchEmbed(dim)
            self.pos_embed = nn.Parameter(torch.empty(1, math.prod(self.trained_grid), dim))
            self.layers = nn.ModuleList(
                Layer(dim, dims["heads"], dims["ffn_dim"]) for _ in range(dims["layers"])
            )
            self.ln1 = nn.LayerNorm(dim, eps=1e-6)

        def prepare(self, h, w):
            positions = self.pos_embed.detach()
            if (h, w) != self.trained_grid:
                planes = positions.float().transpose(1, 2).unflatten(2, self.trained_grid)
                planes = F.interpolate(planes, size=(h, w), mode="bicubic", align_corners=False)
                positions = planes.flatten(2).transpose(1, 2).to(positions.dtype).contiguous()
            self.register_buffer("positions", positions, persistent=False)

        def forward(self, image):
            x = self.patch_embed(image) + self.positions
            for layer in self.layers:
                x = layer(x)
            return self.ln1(x)

    # Second family.

    class LayerScale(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(dim))

        def forward(self, x):
            return x * self.weight

    def rotate(x, cos, sin):
        """The rotary embedding. The model has it in bfloat16, each step rounded, even in float32."""
        y = x.to(torch.bfloat16)
        a, b = y.chunk(2, dim=-1)
        return (y * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)

    def rotary_tables(h, w, head_dim):
        """Cosines and sines in bfloat16, for the prefix tokens (not rotated) and an `h` by `w` grid."""

        def rounded(x):
            return x.to(torch.bfloat16).float()

        def coordinates(n):
            return rounded(rounded(rounded(torch.arange(n) + 0.5) / n) * 2 - 1)

        def angles(n):
            turns = rounded(2 * math.pi * coordinates(n))
            return rounded(turns[:, None] / periods)

        periods = rounded(100 ** rounded(2 * torch.arange(head_dim // 4) / (head_dim / 2)))
        rows = angles(h)[:, None].expand(h, w, -1)
        columns = angles(w)[None].expand(h, w, -1)
        both = torch.cat((rows, columns), dim=-1).reshape(h * w, head_dim // 2).repeat(1, 2)
        both = torch.cat((torch.zeros(PREFIX_TOKENS, head_dim), both))
        return both.cos().to(torch.bfloat16), both.sin().to(torch.bfloat16)

    class GroupedAttention(nn.Module):
        def __init__(self, dim, heads, kv_heads):
            super().__init__()
            head_dim = dim // heads
            self.head_dim = head_dim
            self.grouped = kv_heads != heads
            self.wq = nn.Linear(dim, dim)
            self.wk = nn.Linear(dim, kv_heads * head_dim)
            self.wv = nn.Linear(dim, kv_heads * head_dim)
            self.q_norm = nn.RMSNorm(head_dim, eps=1e-6)
            self.k_norm = nn.RMSNorm(head_dim, eps=1e-6)
            self.proj = nn.Linear(dim, dim)
            self.gamma = LayerScale(dim)

        def forward(self, x, cos, sin):
            heads = (-1, self.head_dim)
            q = self.q_norm(self.wq(x).unflatten(-1, heads)).transpose(1, 2)
            k = self.k_norm(self.wk(x).unflatten(-1, heads)).transpose(1, 2)
            v = self.wv(x).unflatten(-1, heads).transpose(1, 2)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            attended = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.grouped)
            return self.gamma(self.proj(attended.transpose(1, 2).flatten(2)))

    class GatedFeedForward(nn.Module):
        def __init__(self, dim, hidden):
            super().__init__()
            self.w12 = nn.Linear(dim, 2 * hidden)
            self.w3 = nn.Linear(hidden, dim)

        def forward(self, x):
            a, b = self.w12(x).chunk(2, dim=-1)
            return self.w3(F.silu(a) * b)

    class Block(nn.Module):
        def __init__(self, dim, heads, kv_heads, hidden):
            super().__init__()
            self.ln1 = nn.RMSNorm(dim, eps=1e-6)
            self.attn = GroupedAttention(dim, heads, kv_heads)
            self.ln2 = nn.RMSNorm(dim, eps=1e-6)
            self.ffn = GatedFeedForward(dim, hidden)

        def forward(self, x, cos, sin):
            x = x + self.attn(self.ln1(x), cos, sin)
            return x + self.ffn(self.ln2(x))

    class Sapiens2(nn.Module):
        def __init__(self, card):
            super().__init__()
            dims = card["network"]
            dim, heads = dims["embed_dim"], dims["heads"]
            self.head_dim = dim // heads
            self.patch_embed = PatchEmbed(dim)
            self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
            self.storage_tokens = nn.Parameter(torch.empty(1, PREFIX_TOKENS - 1, dim))
            self.blocks = nn.ModuleList(
                Block(dim, heads, kv_heads, dims["ffn_dim"]) for kv_heads in kv_heads_per_layer(dims)
            )
            self.ln1 = nn.RMSNorm(dim, eps=1e-6)

        def prepare(self, h, w):
            cos, sin = rotary_tables(h, w, self.head_dim)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)

        def forward(self, image):
            x = torch.cat((self.cls_token, self.storage_tokens, self.patch_embed(image)), dim=1)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.ln1(x)[:, PREFIX_TOKENS:]

    return Network({"sapiens": Sapiens, "sapiens2": Sapiens2}[card["family"]], card)


# One peer ---------------------------------------------------------------------------------------------------


class Model:
    """A peer's network with generated weights, ready to run at one size."""

    def __init__(self, name, card, size, seed):
        kind, self.precision = name.rsplit("-", 1)
        start = time.perf_counter()
        try:
            self.torch = importlib.import_module("torch")
        except ImportError as error:
            raise CannotRun(f"PyTorch can't be imported: {error}") from error
        self.dtype = {"bf16": self.torch.bfloat16, "f32": self.torch.float32}[self.precision]
        build = self.from_transformers if kind == "transformers" else self.from_here
        self.call = build(card, size, seed, kind, start)

    def from_here(self, card, size, seed, kind, start):
        """The network of this file, compiled or not."""
        torch = self.torch
        self.imported(start)
        with torch.device("meta"):
            network = new_network(card).to(self.dtype)
        self.allocate(network, seed)
        network = network.to(memory_format=torch.channels_last).eval()
        network.prepare(size[1], size[0])
        self.load_s = time.perf_counter() - self.start
        if kind != "torch-compile":
            return network
        # Nothing that an earlier network taught the compiler: sizes stay constants.
        torch.compiler.reset()
        return torch.compile(network)

    def from_transformers(self, card, size, seed, _kind, start):
        """transformers' network, through what it offers for loading weights of the checkpoints' names."""
        if card["family"] != "sapiens2":
            raise CannotRun("transformers has no class for the first family")
        try:
            transformers = importlib.import_module("transformers")
            config_class = transformers.Sapiens2Config
            model_class = transformers.Sapiens2ForSemanticSegmentation
        except ImportError as error:
            raise CannotRun(f"transformers can't be imported: {error}") from error
        except AttributeError as error:
            raise CannotRun(f"transformers {transformers.__version__} has no Sapiens2 classes") from error
        transformers.utils.logging.disable_progress_bar()
        self.imported(start)
        dims = card["network"]
        config = config_class(
            hidden_size=dims["embed_dim"],
            intermediate_size=dims["ffn_dim"],
            num_hidden_layers=dims["layers"],
            num_attention_heads=dims["heads"],
            num_key_value_heads_per_layer=kv_heads_per_layer(dims),
            image_size=[size[1], size[0]],
            num_labels=dims["classes"],
            head_config={
                "upsample_out_channels": dims["deconv_channels"],
                "conv_out_channels": dims["conv_channels"],
            },
        )
        with self.torch.device("meta"):
            named = new_network(card).to(self.dtype)
        self.allocate(named, seed)
        network, report = model_class.from_pretrained(
            None, config=config, state_dict=named.state_dict(), dtype=self.dtype, output_loading_info=True
        )
        del named
        wrong = {what: names for what, names in report.items() if names}
        if wrong:
            raise CannotRun(f"transformers {transformers.__version__} expects other weights: {wrong}")
        network.eval()
        self.load_s = time.perf_counter() - self.start
        return lambda image: network(pixel_values=image).logits

    def imported(self, start):
        """Ends the time that imports took; loading counts from here."""
        self.start = time.perf_counter()
        self.import_s = self.start - start

    def allocate(self, network, seed):
        """Gives a network without memory its generated weights, straight in its own type."""
        network.to_empty(device="cpu").requires_grad_(False)
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, parameter in network.named_parameters():
                fill(name, parameter, seed, pool)
        self.generate_s = time.perf_counter() - start

    def __call__(self, image):
        with self.torch.inference_mode():
            return self.call(image)


def reason(error):
    """An exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]) or "no message"
    if not isinstance(error, CannotRun):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 200 else text[:197] + "..."


def serve(name, card, size, threads, frames):
    """The peer's process: says what loading took, then answers `run` with milliseconds, `peak` with MiB."""
    # The protocol has the real standard output to itself; whatever a library prints goes with the errors.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        import numpy as np

        model = Model(name, card, size, SEED)
        torch = model.torch
        torch.set_num_threads(threads)
        width, height = size
        pixels = uniform("input", INPUT_SEED, 0, 3 * height * width) * np.float32(2)
        image = torch.from_numpy(pixels).view(1, 3, height, width).to(model.dtype)

        def frame():
            start = time.perf_counter()
            model(image)
            return time.perf_counter() - start

        ready = {
            "first_frame_s": frame(),
            "load_s": model.load_s,
            "generate_s": model.generate_s,
            "import_s": model.import_s,
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
            "torch_capability": torch.backends.cpu.get_cpu_capability(),
        }
        if name.startswith("transformers"):
            ready["transformers"] = sys.modules["transformers"].__version__
    except Exception as error:
        print(json.dumps({"error": reason(error)}), file=answers)
        raise SystemExit(1) from error
    print(json.dumps(ready), file=answers)
    for line in sys.stdin:
        if line.strip() == "run":
            frame()
            print(1e3 * statistics.median(frame() for _ in range(frames)), file=answers)
        elif line.strip() == "peak":
            print(json.dumps(status_mib("VmHWM")), file=answers)


class Peer:
    """A peer's process, seen from outside. Raises `CannotRun` where it says why it can't, or ends unasked."""

    def __init__(self, arguments, name, variant, size, scratch):
        expect_memory(variant, name.rsplit("-", 1)[1], 2)
        command = [sys.executable, os.path.abspath(__file__), "--peer", name, "--variant", variant]
        command += ["--input", "{}x{}".format(*size)]
        command += ["--threads", str(arguments.threads), "--frames", str(arguments.frames)]
        # A compiler's cache of its own, empty: the first frame then always takes what it takes.
        cache = tempfile.mkdtemp(dir=scratch)
        environment = {"TORCHINDUCTOR_CACHE_DIR": cache, **os.environ}
        self.errors = tempfile.TemporaryFile(dir=scratch)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        try:
            self.ready = json.loads(self.answer())
            if "error" in self.ready:
                raise CannotRun(self.ready["error"])
        except BaseException:
            self.close()
            raise

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise CannotRun(ending(self.process.wait(), self.tail()))
        return line

    def ask(self, question):
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return json.loads(self.answer())

    def tail(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self):
        """Ends the process and waits for it: its memory and its threads are gone afterwards."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def ending(status, errors):
    """Why a process ended, in one line: the signal, or the last line it wrote."""
    if status < 0:
        memory = ", which is what running out of memory looks like" if status == -signal.SIGKILL else ""
        return f"ended by {signal.Signals(-status).name}{memory}"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else f"ended with status {status}"


# Ours -------------------------------------------------------------------------------------------------------


def run_ours(arguments, variant, size, precision):
    """One round of ours: the report of `sapiens bench`."""
    width, height = size
    expect_memory(variant, precision, 1)
    sapiens, threads, frames = arguments.sapiens, arguments.threads, arguments.frames
    command = [str(sapiens), "bench", "--variant", variant, "--backend", "kernels", "--device", "cpu"]
    command += ["--precision", precision, "--threads", str(threads), "--generated-weights", str(SEED)]
    command += ["--input-size", f"width={width},height={height}", "--frame-size", f"{width}x{height}"]
    command += ["--warm-up", "1", "--frames", str(frames), "--json"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotRun(f"{sapiens}: {error.strerror}") from error
    if result.returncode != 0:
        raise CannotRun(ending(result.returncode, result.stderr))
    try:
        report = json.loads(result.stdout)
        return {
            "network_ms": report["steps"]["network"]["median"],
            "load_s": report["load_ms"] / 1e3,
            "first_frame_s": report["first_frame_ms"] / 1e3,
            "peak_memory_mib": report["peak_memory_mib"],
            "backend": report["backend"],
        }
    except (ValueError, KeyError) as error:
        raise CannotRun(
            f"`sapiens bench` printed no report that this script knows: {reason(error)}"
        ) from error


# The comparison ---------------------------------------------------------------------------------------------


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Comparison:
    """All rounds, and the rows that come of them."""

    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = scratch
        self.rows = []
        self.software = {}

    def run(self):
        for variant in self.arguments.variant:
            card = read_card(variants()[variant])
            for size in self.arguments.input or [(card["input"]["width"], card["input"]["height"])]:
                for precision in self.arguments.precision:
                    peers = [name for name in self.arguments.peers if name.endswith("-" + precision)]
                    self.compare(variant, size, precision, peers)

    def compare(self, variant, size, precision, peers):
        """Ours and each of its peers at one precision. The row of ours is of all rounds there were."""
        common = {"model": variant, "input": list(size), "precision": precision}
        ours = {**common, "who": "ours"}
        self.rows.append(ours)
        rounds = []

        def one():
            if "not_run" in ours:
                return None
            try:
                rounds.append(run_ours(self.arguments, variant, size, precision))
            except CannotRun as error:
                ours["not_run"] = str(error)
                return None
            self.summarise(ours, rounds)
            return rounds[-1]["network_ms"]

        for name in peers:
            self.compare_with({**common, "who": name}, one)
        # Where no peer got as far as a round, ours is measured all the same.
        while len(rounds) < self.arguments.rounds and "not_run" not in ours:
            one()

    def compare_with(self, row, ours):
        """Alternates ours and one peer."""
        self.rows.append(row)
        label = "{} {}x{} {}".format(row["model"], *row["input"], row["who"])
        say(f"{label}: loading")
        try:
            peer = Peer(self.arguments, row["who"], row["model"], row["input"], self.scratch)
        except CannotRun as error:
            row["not_run"] = str(error)
            say(f"{label}: not run: {error}")
            return
        try:
            for key, value in peer.ready.items():
                (row if key.endswith("_s") else self.software)[key] = value
            row["rounds_ms"], row["ours_rounds_ms"] = [], []
            for number in range(self.arguments.rounds):
                beside = ours()
                if beside is not None:
                    row["ours_rounds_ms"].append(beside)
                row["rounds_ms"].append(peer.ask("run"))
                row["network_ms"] = statistics.median(row["rounds_ms"])
                if row["ours_rounds_ms"]:
                    row["ours_ms"] = statistics.median(row["ours_rounds_ms"])
                    row["times_ours"] = row["network_ms"] / row["ours_ms"]
                times = "not run" if beside is None else f"{beside:.1f} ms"
                say(f"{label}: round {number + 1}: ours {times}, peer {row['rounds_ms'][-1]:.1f} ms")
            row["peak_memory_mib"] = peer.ask("peak")
        except CannotRun as error:
            row["not_run"] = str(error)
            say(f"{label}: not run: {error}")
        finally:
            peer.close()

    @staticmethod
    def summarise(row, rounds):
        row["rounds_ms"] = [one["network_ms"] for one in rounds]
        row["backend"] = rounds[-1]["backend"]
        for key in ("network_ms", "load_s", "first_frame_s"):
            row[key] = statistics.median(one[key] for one in rounds)
        peaks = [one["peak_memory_mib"] for one in rounds if one["peak_memory_mib"] is not None]
        row["peak_memory_mib"] = max(peaks, default=None)


def machine(sapiens, threads):
    """What all of this ran on."""
    processor = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            for line in info:
                if line.startswith("model name"):
                    processor = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    memory = status_mib("MemTotal", "/proc/meminfo")
    try:
        version = subprocess.run([str(sapiens), "--version"], capture_output=True, text=True, check=False)
        sapiens = version.stdout.splitlines()[0]
    except (OSError, IndexError):
        # What is wrong with it will be said where it is measured.
        sapiens = str(sapiens)
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gib": memory and memory / 1024,
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "sapiens": sapiens,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def print_table(machine_facts, software, rows, settings):
    """The machine, the table and how to read it, on standard output."""
    facts = machine_facts
    print(f"processor   {facts['processor']}, {facts['cores']} cores, {facts['threads']} threads used")
    if facts["memory_gib"]:
        print(f"memory      {facts['memory_gib']:.0f} GiB")
    print(f"load        {facts['load_average']:.1f} processes were running when this began")
    print(f"system      {facts['system']}")
    backends = sorted({row["backend"] for row in rows if "backend" in row})
    print(f"ours        {', '.join([facts['sapiens'], *backends])}")
    if "torch" in software:
        line = "torch {torch}, {torch_threads} threads, {torch_capability}".format(**software)
        if "transformers" in software:
            line += f"; transformers {software['transformers']}"
        print(f"peers       {line}; Python {facts['python']}")
    print(f"rounds      {settings['rounds']}, alternating, {settings['frames']} frame(s) measured in each\n")
    names = ["model", "input", "who", "precision"]
    titles = ["load s", "first s", "network ms", "ours ms", "ratio", "peak MiB"]
    figures = {
        "load_s": ".2f",
        "first_frame_s": ".2f",
        "network_ms": ".1f",
        "ours_ms": ".1f",
        "times_ours": ".2f",
        "peak_memory_mib": ".0f",
    }
    lines = [(names, titles)]
    for row in rows:
        names = [row["model"], "{}x{}".format(*row["input"]), row["who"], row["precision"]]
        values = [(row.get(key), form) for key, form in figures.items()]
        cells = ["-" if value is None else format(value, form) for value, form in values]
        lines.append((names, cells if "not_run" not in row else f"not run: {row['not_run']}"))
    name_widths = [max(map(len, column)) for column in zip(*(names for names, _ in lines), strict=True)]
    tables = [cells for _, cells in lines if isinstance(cells, list)]
    cell_widths = [max(map(len, column)) for column in zip(*tables, strict=True)]
    for names, cells in lines:
        line = [name.ljust(width) for name, width in zip(names, name_widths, strict=True)]
        if isinstance(cells, list):
            line += [cell.rjust(width) for cell, width in zip(cells, cell_widths, strict=True)]
        else:
            line.append(cells)
        print("  ".join(line))
    print(
        "\nnetwork ms: from the network's input to its logits, median of the rounds. ours ms: median of\n"
        "ours in the rounds beside that peer. ratio: the one over the other, above 1 where it is slower.\n"
        "load s: until ready, with making up the weights, without starting the program and its imports.\n"
        "first s: the first frame, with the compiler's work where there is one. peak MiB: of the process.\n"
        "Ratios from few rounds, or of a machine that does other things too, say little."
    )


# The check --------------------------------------------------------------------------------------------------


def read_safetensors(path):
    """The float32 tensors of a safetensors file."""
    import numpy as np

    data = path.read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:header_end]).items():
        if entry.get("dtype") == "F32":
            first, last = (header_end + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[first:last], dtype="<f4").reshape(entry["shape"])
    return tensors


def check(peers, threads):
    """Holds peers against the reference activations; returns how many differ too much."""
    import numpy as np

    failures = 0
    for name in peers:
        for family, seed in (("tiny-sapiens", 1), ("tiny-sapiens2", 2)):
            for suffix in ("", "-160x64"):
                reference = read_safetensors(DATA / f"{family}.activations{suffix}.safetensors")
                height, width = reference["input"].shape[2:]
                label = f"{name:<20} {family:<14} {width:>3}x{height:<3}"
                try:
                    model = Model(name, read_card(DATA / f"{family}.toml"), (width, height), seed)
                    model.torch.set_num_threads(threads)
                    image = model.torch.from_numpy(reference["input"].copy()).to(model.dtype)
                    logits = model(image).float().numpy()
                except Exception as error:
                    # The plain network is what all others are measured by: it has to run.
                    failures += name == "torch-f32"
                    print(f"{label}  not run: {reason(error)}")
                    continue
                difference = np.abs(logits.astype(np.float64) - reference["logits"])
                good, bound = judge(name, family, difference)
                failures += not good
                print(
                    f"{label}  max {difference.max():.6f}  mean {difference.mean():.6f}"
                    f"  99th percentile {np.percentile(difference, 99):.6f}"
                    f"  {'ok' if good else 'FAILED'}: {bound}"
                )
    return failures


def judge(name, family, difference):
    """Whether a peer's difference to the reference is one of rounding, and the bound it was held to."""
    import numpy as np

    if name.endswith("bf16"):
        # What every half-precision path of this project is held to.
        good = difference.mean() <= 0.05 and np.percentile(difference, 99) <= 0.25
        return good, "mean <= 0.05, 99th percentile <= 0.25"
    # transformers rotates in float32, and a compiler keeps what lies between the rotation's steps in float32:
    # both leave out roundings that move these logits by 0.02. All else is the order of sums.
    unrounded = family == "tiny-sapiens2" and not name.startswith("torch-f32")
    bound = 0.05 if unrounded else 0.002
    return difference.max() <= bound, f"max <= {bound}"


# The command line -------------------------------------------------------------------------------------------


def available_threads():
    """The processors that this process may use, with a container's share of them counted."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            count = min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return count


def size_argument(text):
    sides = text.split("x")
    if len(sides) == 2 and all(side.isdecimal() for side in sides):
        width, height = map(int, sides)
        if all(16 <= side <= 8192 and side % PATCH == 0 for side in (width, height)):
            return width, height
    raise argparse.ArgumentTypeError(
        f"{text}: expected WxH in multiples of 16 from 16 to 8192, as in 384x512"
    )


def count_argument(text):
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: expected a number from 1")


def parse_arguments():
    about, examples = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=about, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = tuple(variants())
    parser.add_argument(
        "--variant",
        action="append",
        choices=known,
        metavar="NAME",
        help=f"a model, may be given repeatedly: {', '.join(known)} (default: sapiens2-0.4b)",
    )
    parser.add_argument(
        "--input",
        action="append",
        type=size_argument,
        metavar="WxH",
        help="size of the network's input, may be given repeatedly (default: the card's)",
    )
    parser.add_argument(
        "--precision",
        action="append",
        choices=PRECISIONS,
        help="may be given repeatedly (default: both, or those of the peers)",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        metavar="PEER",
        help=f"whom to compare with, of {', '.join(PEERS)} (default: all)",
    )
    parser.add_argument("--rounds", type=count_argument, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--frames",
        type=count_argument,
        default=1,
        metavar="N",
        help="frames measured in each round, after one that isn't (default: 1)",
    )
    parser.add_argument(
        "--threads",
        type=count_argument,
        metavar="N",
        help="processor threads of both sides (default: all there are)",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="also write everything measured to FILE"
    )
    parser.add_argument(
        "--sapiens",
        type=pathlib.Path,
        metavar="PATH",
        default=ROOT / "target" / "release" / "sapiens",
        help="our program (default: target/release/sapiens)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="hold the peers (default: torch-f32, torch-bf16, transformers-f32) against tests/data and stop",
    )
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.variant = arguments.variant or ["sapiens2-0.4b"]
    arguments.threads = arguments.threads or available_threads()
    if arguments.check or arguments.peer:
        return arguments
    if not arguments.precision:
        wanted = {name.rsplit("-", 1)[1] for name in arguments.peers or PEERS}
        arguments.precision = [precision for precision in PRECISIONS if precision in wanted]
    for name in arguments.peers or ():
        if name.rsplit("-", 1)[1] not in arguments.precision:
            parser.error(f"peer {name} has a precision that --precision leaves out")
    arguments.peers = arguments.peers or list(PEERS)
    if not arguments.sapiens.is_file() or not os.access(arguments.sapiens, os.X_OK):
        parser.error(
            f"there is no program {arguments.sapiens}: build it with `cargo build --release --bin sapiens`, "
            "or say with --sapiens where it is"
        )
    if arguments.json and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json {arguments.json}: there is no folder {arguments.json.absolute().parent}")
    return arguments


def main():
    arguments = parse_arguments()
    # Before PyTorch is there to read them. Threads without work sleep, so that a waiting peer takes nothing
    # from ours, and its own threads nothing from one another where something else runs too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    if arguments.peer:
        card = read_card(variants()[arguments.variant[0]])
        serve(arguments.peer, card, arguments.input[0], arguments.threads, arguments.frames)
        return 0
    if arguments.check:
        try:
            peers = arguments.peers or ["torch-f32", "torch-bf16", "transformers-f32"]
            return 1 if check(peers, arguments.threads) else 0
        except ImportError as error:
            say(f"the check needs PyTorch and numpy (tools/peer_bench_requirements.txt): {error}")
            return 1
    facts = machine(arguments.sapiens, arguments.threads)
    settings = {"rounds": arguments.rounds, "frames": arguments.frames, "seed": SEED}
    with tempfile.TemporaryDirectory(prefix="peer-bench-") as scratch:
        comparison = Comparison(arguments, scratch)
        try:
            comparison.run()
            status = int(any(row["who"] == "ours" and "not_run" in row for row in comparison.rows))
        except KeyboardInterrupt:
            say("interrupted: this is what there was")
            status = 130
    print_table(facts, comparison.software, comparison.rows, settings)
    if arguments.json:
        report = {"machine": facts | comparison.software, "settings": settings, "results": comparison.rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
