//! Weights as the product reads them: the authors' tensor names, in bfloat16.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use half::bf16;
use safetensors::tensor::{Dtype, TensorView};

use crate::checkpoint::write_whole;
use crate::parameters::Layout;

/// Writes `values` to `path`; `about` becomes the file's text.
///
/// # Errors
/// Whatever the file system reports.
pub fn export(
    path: &Path,
    layout: &Layout,
    values: &[f32],
    about: HashMap<String, String>,
) -> io::Result<()> {
    let bytes: Vec<Vec<u8>> = layout
        .entries()
        .iter()
        .map(|entry| {
            values[entry.range.clone()].iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
        })
        .collect();
    let views = layout
        .entries()
        .iter()
        .zip(&bytes)
        .map(|(entry, bytes)| Ok((&entry.name, TensorView::new(Dtype::BF16, entry.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(io::Error::other)?;
    write_whole(path, &safetensors::serialize(views, Some(about)).map_err(io::Error::other)?)
}
