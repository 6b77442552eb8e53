"""Holds the peers against the references in tests/data: one that computes something else is no peer."""

import numpy as np
import torch
from safetensors.torch import load_file

from cards import ROOT, read_card
from peer import DTYPES, load
from sides import reason

DATA = ROOT / "tests" / "data"


def check(peers, threads):
    """Prints how far each peer is from the references; returns how many are too far."""
    torch.set_num_threads(threads)
    failures = 0
    for name in peers:
        for family, seed in (("tiny-sapiens", 1), ("tiny-sapiens2", 2)):
            for suffix in ("", "-160x64"):
                reference = load_file(DATA / f"{family}.activations{suffix}.safetensors")
                image = reference["input"].to(DTYPES[name.rsplit("-", 1)[1]])
                height, width = image.shape[2:]
                label = f"{name:<20} {family:<14} {width:>3}x{height:<3}"
                try:
                    network, _ = load(name, read_card(DATA / f"{family}.toml"), (width, height), seed)
                    with torch.inference_mode():
                        difference = (network(image).double() - reference["logits"]).abs().numpy()
                except Exception as error:
                    # The plain network is what all others are measured by: it has to run.
                    failures += name == "torch-f32"
                    print(f"{label}  not run: {reason(error)}")
                    continue
                found = {"max": difference.max(), "mean": difference.mean()}
                found["99th percentile"] = np.percentile(difference, 99)
                bounds = allowed(name, family)
                good = all(found[what] <= bound for what, bound in bounds.items())
                failures += not good
                figures = "  ".join(f"{what} {figure:.6f}" for what, figure in found.items())
                held = ", ".join(f"{what} <= {bound}" for what, bound in bounds.items())
                print(f"{label}  {figures}  {'ok' if good else 'FAILED'}: {held}")
    return failures


def allowed(name, family):
    """How far a peer's logits may be from the reference: as far as rounding takes them."""
    if name.endswith("bf16"):
        # What every half-precision path of this project is held to.
        return {"mean": 0.05, "99th percentile": 0.25}
    # transformers rotates in float32, and a compiler keeps what lies between the rotation's steps in float32:
    # both leave out roundings that move these logits by 0.02. All else is the order of sums.
    return {"max": 0.05 if family == "tiny-sapiens2" and name != "torch-f32" else 0.002}
