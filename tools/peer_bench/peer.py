"""One peer in a process of its own. It loads, says so in a line of JSON, and answers each line of its input
with a frame's milliseconds: it never works unasked, so that ours has the processor to itself."""

import json
import os
import sys
import time

import numpy as np
import torch

from cards import SEED, kv_heads_per_layer
from network import Network
from sides import CannotRun, reason
from weights import generate, uniform

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
# Seed of the tensor `input`, as the full-size references have it. The values don't change what a frame takes.
INPUT_SEED = 9


def load(name, card, size, seed):
    """A peer's network as a function of the image, and the seconds that this took, imports aside."""
    kind, precision = name.rsplit("-", 1)
    if kind == "transformers":
        return load_transformers(card, size, DTYPES[precision], seed)
    start = time.perf_counter()
    network = generated(card, DTYPES[precision], seed).to(memory_format=torch.channels_last).eval()
    network.prepare(size[1], size[0])
    load_s = time.perf_counter() - start
    if kind == "torch-compile":
        # Nothing that an earlier network taught the compiler: sizes stay constants.
        torch.compiler.reset()
        network = torch.compile(network)
    return network, load_s


def load_transformers(card, size, dtype, seed):
    if card["family"] != "sapiens2":
        raise CannotRun("transformers has no class for the first family")
    import transformers
    from transformers import Sapiens2Config, Sapiens2ForSemanticSegmentation

    transformers.utils.logging.disable_progress_bar()
    start = time.perf_counter()
    dims = card["network"]
    head = {"upsample_out_channels": dims["deconv_channels"], "conv_out_channels": dims["conv_channels"]}
    config = Sapiens2Config(
        hidden_size=dims["embed_dim"],
        intermediate_size=dims["ffn_dim"],
        num_hidden_layers=dims["layers"],
        num_attention_heads=dims["heads"],
        num_key_value_heads_per_layer=kv_heads_per_layer(dims),
        image_size=[size[1], size[0]],
        num_labels=dims["classes"],
        head_config=head,
    )
    # What it offers for weights with the checkpoints' names.
    weights = generated(card, dtype, seed).state_dict()
    network, report = Sapiens2ForSemanticSegmentation.from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    if any(report.values()):
        raise CannotRun(f"transformers {transformers.__version__} expects other weights: {report}")
    network.eval()
    return lambda image: network(pixel_values=image).logits, time.perf_counter() - start


def generated(card, dtype, seed):
    """The network of this package, which takes no memory before it has its own type."""
    with torch.device("meta"):
        network = Network(card).to(dtype)
    network.to_empty(device="cpu").requires_grad_(False)
    generate(network, seed)
    return network


def serve(name, card, size, threads):
    # The protocol has the real standard output to itself; whatever a library prints goes with the errors.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(threads)
    try:
        network, load_s = load(name, card, size, SEED)
        width, height = size
        pixels = uniform("input", INPUT_SEED, 0, 3 * height * width) * np.float32(2)
        image = torch.from_numpy(pixels).view(1, 3, height, width).to(DTYPES[name.rsplit("-", 1)[1]])

        @torch.inference_mode()
        def frame():
            start = time.perf_counter()
            network(image)
            return time.perf_counter() - start

        ready = {"load_s": load_s, "first_frame_s": frame()}
    except Exception as error:
        print(json.dumps({"error": reason(error)}), file=answers)
        return
    ready["software"] = {"torch": f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}"}
    if name.startswith("transformers"):
        ready["software"]["transformers"] = sys.modules["transformers"].__version__
    print(json.dumps(ready), file=answers)
    for _ in sys.stdin:
        frame()
        print(1e3 * frame(), file=answers)
