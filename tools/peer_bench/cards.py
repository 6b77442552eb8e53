"""Model cards: what each built-in model is made of, and what its weights take."""

import itertools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = 16
# Seed of the weights on both sides.
SEED = 3


def variants():
    """The built-in models' cards, by the names that `sapiens --variant` has for them."""
    paths = sorted((ROOT / "model" / "cards").glob("*.toml"))
    return {path.stem.removeprefix("sapiens-"): path for path in paths}


def read_card(path):
    """A card as a dict, with the number of classes, which it only has in the name of their list."""
    # Here, so that an older Python can make networks of cards that are read already.
    import tomllib

    card = tomllib.loads(path.read_text(encoding="utf-8"))
    card["network"]["classes"] = int(card["classes"].rsplit("-", 1)[1])
    return card


def kv_heads_per_layer(dims):
    """Key/value heads of the second family's layers: all in the first and last few, half between them."""
    layers, full, heads = dims["layers"], dims["full_kv_layers"], dims["heads"]
    return [heads if i < full or i >= layers - full else heads // 2 for i in range(layers)]


def weights_mib(card, precision):
    """What a network's matrices take at most, in MiB. All other weights are few."""
    dims = card["network"]
    dim = dims["embed_dim"]
    count = dims["layers"] * dim * (4 * dim + {"sapiens": 2, "sapiens2": 3}[card["family"]] * dims["ffn_dim"])
    count += sum(16 * a * b for a, b in itertools.pairwise([dim, *dims["deconv_channels"]]))
    return count * {"bf16": 2, "f32": 4}[precision] / (1 << 20)
