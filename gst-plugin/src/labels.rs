//! Labels on their way from the engine into buffers: shared, never copied, their memory used again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use sapiens_model::{Backend, LabelMap, Timing};

use crate::meta::gray_buffer;

/// The labels of one frame, shared by its meta, its overlay, the `mask` pad and the frames that reuse them.
#[derive(Debug)]
pub(crate) struct Labels {
    map: LabelMap,
    pub(crate) backend: Backend,
    pub(crate) timing: Timing,
    pool: Weak<LabelPool>,
}

impl Labels {
    pub(crate) fn map(&self) -> &LabelMap {
        &self.map
    }

    /// The same labels at another size, for a frame that reuses them after the size changed: the nearest label.
    pub(crate) fn fit(self: &Arc<Self>, width: usize, height: usize) -> Arc<Self> {
        let (old_width, old_height) = (self.map.width(), self.map.height());
        if (old_width, old_height) == (width, height) {
            return self.clone();
        }
        let mut map = LabelMap::new(width, height);
        for (y, row) in map.labels_mut().chunks_exact_mut(width.max(1)).enumerate() {
            let from = self.map.row(y * old_height / height);
            for (x, label) in row.iter_mut().enumerate() {
                *label = from[x * old_width / width];
            }
        }
        Arc::new(Self { map, backend: self.backend, timing: self.timing, pool: Weak::new() })
    }

    /// The labels as a GRAY8 buffer without padding between rows, which shares their memory and must not be written.
    pub(crate) fn to_buffer(self: &Arc<Self>) -> gst::Buffer {
        let (width, height) = (self.map.width() as u32, self.map.height() as u32);
        gray_buffer(Bytes(self.clone()), width, height)
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give(std::mem::take(&mut self.map));
        }
    }
}

/// What a buffer over labels holds.
struct Bytes(Arc<Labels>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.map.labels()
    }
}

/// Label maps that nobody uses any more.
#[derive(Debug, Default)]
pub(crate) struct LabelPool {
    free: Mutex<Vec<LabelMap>>,
}

/// Frames in flight, in queues downstream and in the hands of readers: more than this are allocated and freed.
const POOLED: usize = 8;

impl LabelPool {
    /// Wraps `map`, whose memory comes back here.
    pub(crate) fn share(self: &Arc<Self>, map: LabelMap, backend: Backend, timing: Timing) -> Arc<Labels> {
        Arc::new(Labels { map, backend, timing, pool: Arc::downgrade(self) })
    }

    /// Memory for the next labels.
    pub(crate) fn take(&self) -> LabelMap {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, map: LabelMap) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < POOLED {
            free.push(map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKEND: Backend = Backend::PORTABLE;

    #[test]
    fn memory_comes_back_when_the_last_buffer_is_gone() {
        gst::init().unwrap();
        let pool = Arc::new(LabelPool::default());
        let labels = pool.share(LabelMap::new(61, 3), BACKEND, Timing::default());
        let address = labels.map().labels().as_ptr();
        let buffer = labels.to_buffer();
        drop(labels);
        assert_eq!((buffer.size(), buffer.n_memory()), (61 * 3, 1));
        assert_eq!(buffer.meta::<gst_video::VideoMeta>().unwrap().stride(), [61]);
        assert_eq!(
            buffer.map_readable().unwrap().as_ptr(),
            address,
            "the buffer must share the labels' memory"
        );
        assert_eq!(pool.free.lock().unwrap().len(), 0);
        drop(buffer);
        assert_eq!(pool.take().labels().as_ptr(), address);
    }

    #[test]
    fn labels_are_fitted_to_another_size_by_the_nearest() {
        let pool = Arc::new(LabelPool::default());
        let map = LabelMap::from_labels(2, 2, vec![1, 2, 3, 4]).unwrap();
        let labels = pool.share(map, BACKEND, Timing::default());
        assert_eq!(labels.fit(4, 2).map().labels(), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(labels.fit(1, 1).map().labels(), [1]);
        assert!(Arc::ptr_eq(&labels.fit(2, 2), &labels));
    }
}
