"""PyTorch's time for the networks that `device-check --json` timed, on the same card, beside ours.

    python3 torch_networks.py figures.json [--seconds N] [--mode MODE] [--device cpu]

The networks are those of tools/peer_bench, which its --check holds against the authors' numbers. Each runs as it is and with
torch.compile, weights and input on the device, in the precision of ours. What is compared is the forward pass alone: no frame
comes and no labels go.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
# Beside this file where device-check was copied to, and where it is in the repository.
sys.path[:0] = [str(HERE / "peer_bench"), str(HERE.parent / "peer_bench")]

from network import Network
from weights import scale_and_offset

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


def build(card, dtype, size, device):
    """A network with random weights of the usual scales, and an input."""
    with torch.device("meta"):
        network = Network(card).to(dtype)
    network.to_empty(device=device).requires_grad_(False)
    for name, parameter in network.named_parameters():
        scale, offset = scale_and_offset(name, parameter.shape)
        parameter.uniform_(-1, 1).mul_(scale).add_(offset)
    network = network.to(memory_format=torch.channels_last).eval()
    width, height = size
    with torch.device(device):
        network.prepare(height, width)
        image = torch.empty(1, 3, height, width).uniform_(-2, 2).to(dtype)
    return network, image


@torch.inference_mode()
def milliseconds(network, image, frames, rounds):
    """Of one frame, where the next is queued before it is done: the median of some rounds."""
    cuda = image.device.type == "cuda"
    times = []
    for _ in range(rounds):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(frames):
            network(image)
        if cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start) / frames)
    return statistics.median(times)


@torch.inference_mode()
def warm_up(network, image):
    """Seconds of the first frames, in which whatever is to be compiled is."""
    start = time.perf_counter()
    for _ in range(3):
        network(image)
    if image.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


class Budget:
    """Nothing is begun that would take longer than is left, as long as the longest of its kind took before."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.longest = {}

    def spend(self, kind, work):
        start = time.monotonic()
        if start + self.longest.get(kind, 0) >= self.end:
            return {"not_run": "no time is left"}
        try:
            result = work()
        except Exception as error:  # A compiler that isn't there, or no memory: a line of the table, not its end.
            result = {"not_run": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
        self.longest[kind] = max(self.longest.get(kind, 0), time.monotonic() - start)
        return result


def measure(compare, card, dtype, size, arguments):
    """One network, as it is or compiled."""
    cuda = arguments.device == "cuda"
    network, image = build(card, dtype, size, arguments.device)
    if compare == "compiled":
        # What was compiled before counts against a limit, beyond which nothing would be compiled any more.
        torch.compiler.reset()
        network = torch.compile(network, dynamic=False, mode=arguments.mode)
    if cuda:
        # What the last network left in cycles isn't this one's.
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    found = {"first_frames_s": warm_up(network, image)}
    found["ms"] = milliseconds(network, image, arguments.frames, arguments.rounds)
    if cuda:
        found["peak_memory_mib"] = torch.cuda.max_memory_allocated() / (1 << 20)
    return found


def table(report, software):
    """Markdown, for docs/performance.md."""
    print(f"\nBeside {software}, the forward pass alone, ms:\n")
    print("| | precision | ours | eager | compiled | eager / ours | compiled / ours | memory, eager, MiB | compiling, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    reasons = []
    for network in report["networks"]:
        name = f"{network['network']} | {network['precision']}"
        if "torch" not in network:
            continue
        ours, sides = network["times"]["network_ms"], network["torch"]
        for side, found in sides.items():
            if "not_run" in found:
                reasons.append(f"{name.replace(' | ', ', ')}, {side} not run: {found['not_run']}")
        eager, compiled = (sides[side].get("ms") for side in ("eager", "compiled"))
        cells = [f"{ours:.2f}", *(f"{ms:.2f}" if ms else "" for ms in (eager, compiled))]
        cells += [f"{ms / ours:.2f}" if ms else "" for ms in (eager, compiled)]
        memory = sides["eager"].get("peak_memory_mib")
        cells.append(f"{memory:.0f}" if memory else "")
        cells.append(f"{sides['compiled']['first_frames_s']:.0f}" if compiled else "")
        print(f"| {name} | {' | '.join(cells)} |")
    print(*([""] + reasons), sep="\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("figures", type=pathlib.Path, help="what device-check --json wrote; PyTorch's are added")
    parser.add_argument("--seconds", type=float, default=120, help="begin nothing that takes longer (default: 120)")
    parser.add_argument("--mode", choices=MODES, default="default", help="of torch.compile (default: default)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script itself")
    parser.add_argument("--frames", type=int, default=10, help="queued together (default: 10)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts (default: 5)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    report = json.loads(arguments.figures.read_text(encoding="utf-8"))
    budget = Budget(arguments.seconds)
    # Float32 is in none of the networks' products; what PyTorch does with halves is left at its default.
    for network in report["networks"]:
        if "times" not in network:
            continue
        dtype = DTYPES[network["precision"].split(",")[0]]
        network["torch"] = {
            side: budget.spend(side, lambda: measure(side, network["card"], dtype, network["input"], arguments))
            for side in ("eager", "compiled")
        }
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "the processor"
    report["torch"] = {"version": torch.__version__, "device": where, "mode": arguments.mode}
    arguments.figures.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    table(report, f"PyTorch {torch.__version__} on {where} (torch.compile: {arguments.mode})")


if __name__ == "__main__":
    main()
