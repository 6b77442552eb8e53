//! All memory of one frame's forward pass on the device, made once per input size.

use sapiens_kernels::cuda::cublaslt::Room;
use sapiens_kernels::cuda::product::MomentBlocks;
use sapiens_kernels::cuda::{Buffer, Plain, SliceMut, Stream};
use sapiens_kernels::reference::position_embedding;

use super::network::{Network, Positions, head_stride, logits_stride};
use crate::engine::sizes::rotary_angles;
use crate::error::Result;
use crate::weights::PATCH;

#[derive(Debug)]
pub(super) struct Workspace {
    /// Height and width of the input.
    pub size: [usize; 2],
    /// The residual stream, `[tokens, D]`.
    pub x: Buffer<f32>,
    /// A norm's output, then attention's.
    pub narrow: Buffer<u16>,
    /// Patches, then queries, keys and values, then the feed-forward network's hidden values.
    pub wide: Buffer<u16>,
    /// The head's maps, in turn.
    pub maps: [Buffer<u16>; 2],
    /// Of the map being made, and how each layer's are laid out.
    pub moments: Buffer<f32>,
    pub moment_blocks: Vec<MomentBlocks>,
    pub statistics: Buffer<f32>,
    /// `[height, width, stride]`.
    pub logits: Buffer<f32>,
    /// The position embedding of this grid; empty where there is none.
    pub pos_embed: Buffer<f32>,
    /// Sines and cosines of this grid, each `[patches, head_dim / 2]`, where there are any.
    pub rotary: Option<[Buffer<f32>; 2]>,
    /// What products need beside their operands.
    pub room: Option<Room>,
}

impl Workspace {
    /// For inputs of `size`, multiples of a patch.
    ///
    /// # Errors
    /// If there isn't so much memory on the device.
    pub fn new(network: &Network, stream: &Stream, size: [usize; 2]) -> Result<Self> {
        let sizes = network.sizes();
        let grid @ [rows, columns] = size.map(|side| side / PATCH);
        let (patches, head_dim) = (rows * columns, sizes.head_dim());
        let tokens = sizes.prefix + patches;
        let of_heads = sizes.heads * head_stride(sizes);
        let wide = (tokens * sizes.ffn_dim.max(3 * of_heads)).max(3 * size[0] * size[1]);
        let (maps, pixels) = sizes.maps(patches);
        let (pos_embed, rotary) = match &network.positions {
            Positions::Embedding { values, grid } => {
                (uploaded(stream, &position_embedding(values, *grid, (rows, columns)))?, None)
            }
            Positions::Rotary { .. } => {
                let [sin, cos] = rotary_angles(grid, head_dim);
                (Buffer::new(stream.gpu(), 0)?, Some([uploaded(stream, &sin)?, uploaded(stream, &cos)?]))
            }
        };
        let moment_blocks = network.moments(grid);
        let most = |len: fn(&MomentBlocks) -> usize| moment_blocks.iter().map(len).max().unwrap_or(0);
        let gpu = stream.gpu();
        Ok(Self {
            size,
            x: Buffer::new(gpu, tokens * sizes.embed_dim)?,
            narrow: Buffer::new(gpu, tokens * sizes.embed_dim.max(of_heads))?,
            wide: Buffer::new(gpu, wide)?,
            maps: [Buffer::new(gpu, maps[0])?, Buffer::new(gpu, maps[1])?],
            moments: Buffer::new(gpu, most(MomentBlocks::len))?,
            statistics: Buffer::new(gpu, most(|blocks| 2 * blocks.columns))?,
            logits: Buffer::new(gpu, pixels * logits_stride(sizes))?,
            pos_embed,
            rotary,
            room: network.room(tokens)?,
            moment_blocks,
        })
    }

    /// Where the network's input goes: rows of patches.
    pub fn patches(&mut self) -> SliceMut<'_, u16> {
        let len = 3 * self.size[0] * self.size[1];
        self.wide.slice_mut(..len)
    }
}

fn uploaded<T: Plain>(stream: &Stream, values: &[T]) -> Result<Buffer<T>> {
    let mut buffer = Buffer::new(stream.gpu(), values.len())?;
    stream.upload(values, buffer.slice_mut(..))?;
    Ok(buffer)
}
