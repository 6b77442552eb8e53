//! One copy of a network for all who use the same card, weights and backend. Knows no engine in particular.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::backend::Backend;
use crate::card::ModelCard;
use crate::error::Result;
use crate::weights::WeightsIdentity;

/// What makes two networks the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub card: Arc<ModelCard>,
    pub weights: WeightsIdentity,
    pub backend: Backend,
    /// Tells a GPU's contexts apart, each of which has memory of its own; none elsewhere.
    pub context: Option<usize>,
}

type Held = Arc<Mutex<Weak<dyn Any + Send + Sync>>>;

/// A handful at most, so a list will do. Networks that nobody uses any more are only remembered, not kept.
static NETWORKS: Mutex<Vec<(Key, Held)>> = Mutex::new(Vec::new());

/// The network of `key` if somebody uses it now, else what `load` makes. While one caller loads, others who want
/// the same wait for it; those who want another one do not.
pub(crate) fn network<T: Any + Send + Sync>(key: &Key, load: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let held: Held = {
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        networks.retain(|(known, held)| {
            // Someone else holds the list's entry while loading; only entries that nobody holds can be stale.
            known == key
                || Arc::strong_count(held) > 1
                || held.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
        });
        match networks.iter().find(|(known, _)| known == key) {
            Some((_, held)) => held.clone(),
            None => {
                let held: Held = Arc::new(Mutex::new(Weak::<T>::new()));
                networks.push((key.clone(), held.clone()));
                held
            }
        }
    };
    let mut network = held.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(network) = network.upgrade().and_then(|network| network.downcast::<T>().ok()) {
        return Ok(network);
    }
    let loaded = Arc::new(load()?);
    let weak: Weak<T> = Arc::downgrade(&loaded);
    *network = weak;
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::variant::Variant;
    use crate::weights::Weights;

    fn key(seed: u64) -> Key {
        let card = Arc::new(ModelCard::of(Variant::Sapiens03b));
        let weights = Weights::generated(&card, seed).identity().clone();
        Key { card, weights, backend: Backend::PORTABLE, context: None }
    }

    #[test]
    fn equal_keys_share_and_the_last_user_frees() {
        let loads = AtomicUsize::new(0);
        let load = || {
            loads.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(vec![0u8; 4])
        };
        let shared: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| network(&key(101), load).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        assert!(shared.iter().all(|network| Arc::ptr_eq(network, &shared[0])));
        let other = network(&key(102), load).unwrap();
        assert_eq!((Arc::ptr_eq(&other, &shared[0]), loads.load(Ordering::SeqCst)), (false, 2));
        drop(shared);
        let again = network(&key(101), load).unwrap();
        assert_eq!((again.len(), loads.load(Ordering::SeqCst)), (4, 3));
    }

    #[test]
    fn a_failed_load_is_not_remembered() {
        let failing =
            network::<u8>(&key(103), || Err(crate::SegmentError::new(crate::ErrorKind::Io, "gone")));
        assert_eq!(failing.unwrap_err().to_string(), "gone");
        assert_eq!(*network(&key(103), || Ok(9u8)).unwrap(), 9);
    }
}
