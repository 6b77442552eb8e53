//! One tensor as a file holds it: type, shape, strides and where its storage is. Turns it into row-major
//! f32; knows no file format and no card.

#[cfg(feature = "cuda")]
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use half::f16;

use super::map::Map;

/// More dimensions than any tensor of these networks has.
pub(super) const MAX_DIMS: usize = 8;

/// Type of the stored values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    F32,
    F16,
    Bf16,
    /// Some other type, by the file's name for it: fine in a tensor that nobody reads.
    Other(String),
}

impl Element {
    pub fn is_float(&self) -> bool {
        !matches!(self, Element::Other(_))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F32 => "float32",
            Element::F16 => "float16",
            Element::Bf16 => "bfloat16",
            Element::Other(name) => name,
        })
    }
}

/// A tensor's values, row-major, as bytes, the lowest of each value first.
#[cfg(feature = "cuda")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RawValues<'a> {
    /// Of the file, or made.
    F32(Cow<'a, [u8]>),
    F16(&'a [u8]),
    Bf16(&'a [u8]),
}

#[cfg(feature = "cuda")]
impl RawValues<'_> {
    /// Values that no file has so.
    pub fn made(values: &[f32]) -> Self {
        Self::F32(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

/// Where a tensor's values (and perhaps other tensors') are.
#[derive(Debug, Clone)]
pub(super) enum Storage {
    Mapped {
        map: Arc<Map>,
        start: usize,
        len: usize,
    },
    /// Entry `entry` of the archive `map`, not yet inflated to its `len` bytes.
    Deflated {
        map: Arc<Map>,
        entry: usize,
        len: usize,
    },
    Owned(Arc<[u8]>),
}

/// A tensor whose every element is known to be within its storage.
#[derive(Debug, Clone)]
pub(super) struct StoredTensor {
    element: Element,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// The first value's index in the storage.
    offset: usize,
    pub storage: Storage,
}

impl StoredTensor {
    /// A tensor over a storage of `storage_count` values; the caller has seen to it that the storage has them.
    pub fn new(
        element: Element,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        storage_count: usize,
        storage: Storage,
    ) -> Result<Self, String> {
        if shape.len() != strides.len() {
            return Err(format!("shape {shape:?} and strides {strides:?} differ in length"));
        }
        if shape.len() > MAX_DIMS {
            return Err(format!("{} dimensions: expected at most {MAX_DIMS}", shape.len()));
        }
        let count = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        let Some(count) = count else {
            return Err(format!("shape {shape:?} has more values than can be counted"));
        };
        let last = shape.iter().zip(&strides).try_fold(offset, |last, (&dim, &stride)| {
            last.checked_add(dim.saturating_sub(1).checked_mul(stride)?)
        });
        let within = match last {
            Some(last) if count > 0 => last < storage_count,
            _ => count == 0,
        };
        if !within {
            return Err(format!(
                "offset {offset}, shape {shape:?}, strides {strides:?} reach outside its storage of {storage_count} values"
            ));
        }
        Ok(Self { element, shape, strides, offset, storage })
    }

    pub fn element(&self) -> &Element {
        &self.element
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Leaves out the first index of dimension `dim`.
    pub fn drop_first(&mut self, dim: usize) {
        if self.shape[dim] > 0 {
            self.shape[dim] -= 1;
            self.offset += self.strides[dim];
        }
    }

    /// The values from `first` on, row-major, as f32. The caller has seen to it that the tensor has so many.
    pub fn read_into(&self, first: usize, out: &mut [f32]) -> Result<(), String> {
        let bytes = self.bytes()?;
        match &self.element {
            Element::F32 => self.decode(bytes, first, out, f32::from_le_bytes),
            Element::F16 => self.decode(bytes, first, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Element::Bf16 => self.decode(bytes, first, out, |bytes| {
                f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
            }),
            Element::Other(name) => return Err(no_float(name)),
        }
        Ok(())
    }

    /// All values as they are stored; where they don't lie side by side, a copy in float32.
    #[cfg(feature = "cuda")]
    pub fn raw(&self) -> Result<RawValues<'_>, String> {
        let count: usize = self.shape.iter().product();
        if !self.is_contiguous() {
            let mut values = vec![0.0; count];
            self.read_into(0, &mut values)?;
            return Ok(RawValues::made(&values));
        }
        let bytes = self.bytes()?;
        let of = |size: usize| &bytes[self.offset * size..][..count * size];
        match &self.element {
            Element::F32 => Ok(RawValues::F32(of(4).into())),
            Element::F16 => Ok(RawValues::F16(of(2))),
            Element::Bf16 => Ok(RawValues::Bf16(of(2))),
            Element::Other(name) => Err(no_float(name)),
        }
    }

    /// All of its storage.
    fn bytes(&self) -> Result<&[u8], String> {
        match &self.storage {
            Storage::Mapped { map, start, len } => map.bytes(*start..start + len),
            Storage::Owned(bytes) => Ok(bytes),
            Storage::Deflated { .. } => Err("its storage was not inflated".into()),
        }
    }

    fn decode<const SIZE: usize>(
        &self,
        bytes: &[u8],
        first: usize,
        out: &mut [f32],
        value: impl Fn([u8; SIZE]) -> f32,
    ) {
        let (values, _) = bytes.as_chunks::<SIZE>();
        if self.is_contiguous() {
            let values = &values[self.offset + first..][..out.len()];
            for (out, bytes) in out.iter_mut().zip(values) {
                *out = value(*bytes);
            }
            return;
        }
        if out.is_empty() {
            return;
        }
        // An odometer over all dimensions, set to where the first value is.
        let mut index = vec![0usize; self.shape.len()];
        let mut rest = first;
        for (index, &dim) in index.iter_mut().zip(&self.shape).rev() {
            *index = rest % dim;
            rest /= dim;
        }
        let mut place =
            self.offset + index.iter().zip(&self.strides).map(|(i, stride)| i * stride).sum::<usize>();
        for out in out {
            *out = value(values[place]);
            for (dim, index) in index.iter_mut().enumerate().rev() {
                *index += 1;
                // The stride of a dimension of one is never used, so it may say anything.
                place = place.wrapping_add(self.strides[dim]);
                if *index < self.shape[dim] {
                    break;
                }
                place = place.wrapping_sub(index.wrapping_mul(self.strides[dim]));
                *index = 0;
            }
        }
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1usize;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            // The stride of a dimension of one is never used, so it may say anything.
            if dim != 1 && stride != expected {
                return false;
            }
            expected = expected.saturating_mul(dim);
        }
        true
    }
}

fn no_float(name: &str) -> String {
    format!("expected float32, float16 or bfloat16, found {name}")
}

/// Strides of a row-major tensor.
pub(super) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(
        shape: &[usize],
        strides: &[usize],
        offset: usize,
        count: usize,
    ) -> Result<StoredTensor, String> {
        let bytes: Vec<u8> = (0..count).flat_map(|value| (value as f32).to_le_bytes()).collect();
        let storage = Storage::Owned(bytes.into());
        StoredTensor::new(Element::F32, shape.to_vec(), strides.to_vec(), offset, count, storage)
    }

    fn values(tensor: &StoredTensor) -> Vec<f32> {
        let mut out = vec![f32::NAN; tensor.shape().iter().product()];
        tensor.read_into(0, &mut out).unwrap();
        out
    }

    #[test]
    fn strides_and_offsets_are_honoured() {
        assert_eq!(values(&tensor(&[2, 3], &[3, 1], 0, 6).unwrap()), [0., 1., 2., 3., 4., 5.]);
        assert_eq!(values(&tensor(&[3, 2], &[1, 3], 0, 6).unwrap()), [0., 3., 1., 4., 2., 5.]);
        assert_eq!(values(&tensor(&[2, 2], &[3, 2], 1, 7).unwrap()), [1., 3., 4., 6.]);
        assert_eq!(values(&tensor(&[2, 2, 2], &[1, 4, 2], 0, 8).unwrap()), [0., 2., 4., 6., 1., 3., 5., 7.]);
        assert_eq!(values(&tensor(&[4], &[0], 2, 3).unwrap()), [2.; 4]);
        assert_eq!(values(&tensor(&[1, 3], &[99, 1], 0, 3).unwrap()), [0., 1., 2.]);
        assert_eq!(values(&tensor(&[], &[], 1, 2).unwrap()), [1.]);
        assert_eq!(values(&tensor(&[0, 3], &[3, 1], 0, 0).unwrap()), [0f32; 0]);
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        for tensor in [tensor(&[3, 4], &[4, 1], 2, 14), tensor(&[3, 2, 2], &[1, 6, 3], 0, 12)] {
            let tensor = tensor.unwrap();
            let whole = values(&tensor);
            for first in 0..=12 {
                for len in 0..=12 - first {
                    let mut part = vec![f32::NAN; len];
                    tensor.read_into(first, &mut part).unwrap();
                    assert_eq!(part, whole[first..][..len]);
                }
            }
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn raw_values_are_the_files_own() {
        let whole = tensor(&[2, 3], &[3, 1], 2, 9).unwrap();
        let Storage::Owned(bytes) = &whole.storage else { panic!() };
        let RawValues::F32(Cow::Borrowed(raw)) = whole.raw().unwrap() else { panic!("{:?}", whole.raw()) };
        assert!(std::ptr::eq(raw, &bytes[8..32]));
        let bytes: Arc<[u8]> = (0..12).collect();
        let half = |element| {
            StoredTensor::new(element, vec![3], vec![1], 2, 6, Storage::Owned(bytes.clone())).unwrap()
        };
        assert_eq!(half(Element::F16).raw().unwrap(), RawValues::F16(&bytes[4..10]));
        assert_eq!(half(Element::Bf16).raw().unwrap(), RawValues::Bf16(&bytes[4..10]));
        // Columns first: row-major only in a copy.
        let turned = tensor(&[3, 2], &[1, 3], 0, 6).unwrap();
        assert_eq!(turned.raw().unwrap(), RawValues::made(&[0., 3., 1., 4., 2., 5.]));
        let other = StoredTensor { element: Element::Other("int64".into()), ..whole.clone() };
        assert!(other.raw().unwrap_err().contains("found int64"));
    }

    #[test]
    fn first_row_can_be_left_out() {
        let mut tensor = tensor(&[1, 3, 2], &[6, 2, 1], 0, 6).unwrap();
        tensor.drop_first(1);
        assert_eq!(tensor.shape(), [1, 2, 2]);
        assert_eq!(values(&tensor), [2., 3., 4., 5.]);
    }

    #[test]
    fn what_reaches_outside_is_refused() {
        for (shape, strides, offset, count) in [
            (vec![2, 3], vec![3, 1], 1, 6),
            (vec![2], vec![6], 0, 6),
            (vec![1], vec![1], 1, 1),
            (vec![1], vec![1], usize::MAX, 1),
            (vec![2], vec![usize::MAX], 1, 8),
            (vec![3], vec![usize::MAX], 0, 8),
            (vec![usize::MAX, usize::MAX], vec![0, 0], 0, 8),
            (vec![2], vec![1, 1], 0, 8),
            (vec![1; 9], vec![1; 9], 0, 8),
        ] {
            tensor(&shape, &strides, offset, count).unwrap_err();
        }
    }
}
