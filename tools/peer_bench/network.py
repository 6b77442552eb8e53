"""PyTorch's side of the comparison: both families, their parameters named as in the checkpoints.
A network maps `[1, 3, H, W]` to logits. `prepare` computes once what depends on weights and size alone."""

import collections
import functools
import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from cards import PATCH, kv_heads_per_layer

PREFIX_TOKENS = 9
LayerNorm = functools.partial(nn.LayerNorm, eps=1e-6)
RMSNorm = functools.partial(nn.RMSNorm, eps=1e-6)


class Network(nn.Module):
    """A backbone that gives `[1, h * w, D]`, and the head."""

    def __init__(self, card):
        super().__init__()
        self.backbone = {"sapiens": Sapiens, "sapiens2": Sapiens2}[card["family"]](card)
        self.decode_head = Head(card["network"])

    def prepare(self, height, width):
        self.grid = (height // PATCH, width // PATCH)
        self.backbone.prepare(*self.grid)

    def forward(self, image):
        tokens = self.backbone(image)
        # A view, and already in the channels-last order that the convolutions are fastest in.
        return self.decode_head(tokens.transpose(1, 2).unflatten(2, self.grid))


class PatchEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.projection = nn.Conv2d(3, dim, PATCH, PATCH)

    def forward(self, image):
        return self.projection(image).flatten(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, norm, dim, attention, feed_forward):
        super().__init__()
        self.ln1, self.attn = norm(dim), attention
        self.ln2, self.ffn = norm(dim), feed_forward

    def forward(self, x, *rotary):
        x = x + self.attn(self.ln1(x), *rotary)
        return x + self.ffn(self.ln2(x))


class Head(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.deconv_layers, self.conv_layers = nn.Sequential(), nn.Sequential()
        wide, narrow = [dims["embed_dim"], *dims["deconv_channels"]], dims["conv_channels"]
        for a, b in itertools.pairwise(wide):
            deconv = nn.ConvTranspose2d(a, b, 4, stride=2, padding=1, bias=False)
            self.deconv_layers.extend([deconv, nn.InstanceNorm2d(b), nn.SiLU(inplace=True)])
        for a, b in itertools.pairwise([wide[-1], *narrow]):
            self.conv_layers.extend([nn.Conv2d(a, b, 1), nn.InstanceNorm2d(b), nn.SiLU(inplace=True)])
        self.conv_seg = nn.Conv2d([*wide, *narrow][-1], dims["classes"], 1)

    def forward(self, features):
        return self.conv_seg(self.conv_layers(self.deconv_layers(features)))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def feed_forward(dim, hidden):
    expand = nn.Sequential(nn.Linear(dim, hidden), nn.GELU())
    return nn.Sequential(collections.OrderedDict(layers=nn.Sequential(expand, nn.Linear(hidden, dim))))


class Sapiens(nn.Module):
    def __init__(self, card):
        super().__init__()
        dims = card["network"]
        dim, heads, hidden = dims["embed_dim"], dims["heads"], dims["ffn_dim"]
        self.trained_grid = (card["input"]["height"] // PATCH, card["input"]["width"] // PATCH)
        self.patch_embed = PatchEmbed(dim)
        self.pos_embed = nn.Parameter(torch.empty(1, math.prod(self.trained_grid), dim))
        self.layers = nn.ModuleList(
            Block(LayerNorm, dim, Attention(dim, heads), feed_forward(dim, hidden))
            for _ in range(dims["layers"])
        )
        self.ln1 = LayerNorm(dim)

    def prepare(self, h, w):
        positions = self.pos_embed.detach()
        if (h, w) != self.trained_grid:
            planes = positions.float().transpose(1, 2).unflatten(2, self.trained_grid)
            planes = F.interpolate(planes, size=(h, w), mode="bicubic", align_corners=False)
            positions = planes.flatten(2).transpose(1, 2).to(positions.dtype).contiguous()
        self.positions = positions

    def forward(self, image):
        x = self.patch_embed(image) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.ln1(x)


def rotate(x, cos, sin):
    """The rotary embedding. The model has it in bfloat16, each step rounded, even in float32."""
    y = x.to(torch.bfloat16)
    a, b = y.chunk(2, dim=-1)
    return (y * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)


def rotary_tables(h, w, head_dim):
    """Cosines and sines in bfloat16, for the prefix tokens (not rotated) and an `h` by `w` grid."""

    def rounded(x):
        return x.to(torch.bfloat16).float()

    def angles(n):
        coordinates = rounded(rounded(rounded(torch.arange(n) + 0.5) / n) * 2 - 1)
        return rounded(rounded(2 * math.pi * coordinates)[:, None] / periods)

    periods = rounded(100 ** rounded(2 * torch.arange(head_dim // 4) / (head_dim / 2)))
    rows = angles(h)[:, None].expand(h, w, -1)
    columns = angles(w)[None].expand(h, w, -1)
    both = torch.cat((rows, columns), dim=-1).reshape(h * w, head_dim // 2).repeat(1, 2)
    both = torch.cat((torch.zeros(PREFIX_TOKENS, head_dim), both))
    return both.cos().to(torch.bfloat16), both.sin().to(torch.bfloat16)


class GroupedAttention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.head_dim = dim // heads
        self.grouped = kv_heads != heads
        self.wq = nn.Linear(dim, dim)
        self.wk = nn.Linear(dim, kv_heads * self.head_dim)
        self.wv = nn.Linear(dim, kv_heads * self.head_dim)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)
        self.proj = nn.Linear(dim, dim)
        self.gamma = nn.Module()
        self.gamma.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x, cos, sin):
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in (self.wq, self.wk, self.wv))
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(k).transpose(1, 2), cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), enable_gqa=self.grouped)
        return self.proj(attended.transpose(1, 2).flatten(2)) * self.gamma.weight


class GatedFeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x):
        a, b = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(a) * b)


class Sapiens2(nn.Module):
    def __init__(self, card):
        super().__init__()
        dims = card["network"]
        dim, heads, hidden = dims["embed_dim"], dims["heads"], dims["ffn_dim"]
        self.head_dim = dim // heads
        self.patch_embed = PatchEmbed(dim)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.storage_tokens = nn.Parameter(torch.empty(1, PREFIX_TOKENS - 1, dim))
        self.blocks = nn.ModuleList(
            Block(RMSNorm, dim, GroupedAttention(dim, heads, kv_heads), GatedFeedForward(dim, hidden))
            for kv_heads in kv_heads_per_layer(dims)
        )
        self.ln1 = RMSNorm(dim)

    def prepare(self, h, w):
        self.rotary = rotary_tables(h, w, self.head_dim)

    def forward(self, image):
        x = torch.cat((self.cls_token, self.storage_tokens, self.patch_embed(image)), dim=1)
        for block in self.blocks:
            x = block(x, *self.rotary)
        return self.ln1(x)[:, PREFIX_TOKENS:]
