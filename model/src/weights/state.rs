//! From a pickle's objects to named tensors: a TorchScript object tree or a state dict. Knows no zip.

use super::pickle::{Node, Pickle, StorageType, Text, Value, cut};

/// Limits far above any checkpoint; shared subtrees and cycles could otherwise be walked for ever.
const MAX_DEPTH: usize = 64;
const MAX_VISITS: usize = 1 << 16;
const MAX_NAME: usize = 1 << 10;

/// Which of the two it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    TorchScript,
    StateDict,
}

/// A tensor as the pickle describes it; nothing in it has been held against the file yet.
#[derive(Debug)]
pub(super) struct Record {
    pub name: String,
    pub kind: StorageType,
    pub key: Text,
    /// Values in the storage.
    pub storage_count: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    pub offset: usize,
}

/// Every named tensor of the pickle.
pub(super) fn tensors(pickle: &Pickle<'_>) -> Result<(Kind, Vec<Record>), String> {
    match pickle.node(pickle.root()) {
        Some(Node::Object { .. }) => Ok((Kind::TorchScript, object_tree(pickle)?)),
        Some(Node::Dict(items)) => Ok((Kind::StateDict, state_dict(pickle, items)?)),
        Some(Node::Tensor { .. }) => Err("it holds one tensor: expected a model or a dict of tensors".into()),
        _ => Err("it holds neither a TorchScript model nor a dict of tensors".into()),
    }
}

/// Attributes joined by dots, from the root down: `backbone.layers.0.ln1.weight`.
fn object_tree(pickle: &Pickle<'_>) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut todo = vec![(pickle.root(), String::new(), 0)];
    let mut visits = 0;
    while let Some((value, name, depth)) = todo.pop() {
        visits += 1;
        if visits > MAX_VISITS {
            return Err(format!("more than {MAX_VISITS} attributes"));
        }
        match pickle.node(value) {
            Some(Node::Object { state: Some(state) }) => {
                if depth >= MAX_DEPTH {
                    return Err(format!("{}...: nested deeper than {MAX_DEPTH} objects", cut(&name)));
                }
                let Some(Node::Dict(attributes)) = pickle.node(Value::Node(*state)) else { continue };
                for &(key, child) in attributes {
                    // Only what can hold tensors is worth a name: objects and tensors.
                    if !matches!(pickle.node(child), Some(Node::Object { .. } | Node::Tensor { .. })) {
                        continue;
                    }
                    let key =
                        pickle.text(key).ok_or_else(|| format!("{name}: an attribute without a name"))?;
                    if name.len() + key.len() > MAX_NAME {
                        return Err(format!("{}: a name longer than {MAX_NAME} bytes", cut(&name)));
                    }
                    let child_name = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
                    if todo.len() + visits > MAX_VISITS {
                        return Err(format!("more than {MAX_VISITS} attributes"));
                    }
                    todo.push((child, child_name, depth + 1));
                }
            }
            Some(Node::Tensor { .. }) => records.push(record(pickle, value, name)?),
            _ => {}
        }
    }
    Ok(records)
}

/// The tensors of a dict, or of the dict that is its `state_dict` or `model`.
fn state_dict(pickle: &Pickle<'_>, items: &[(Value, Value)]) -> Result<Vec<Record>, String> {
    let is_tensor = |&(_, value): &(Value, Value)| matches!(pickle.node(value), Some(Node::Tensor { .. }));
    let mut found = items;
    if !items.iter().any(is_tensor) {
        let inner = ["state_dict", "model"].iter().find_map(|&wanted| {
            items.iter().find_map(|&(key, value)| match pickle.node(value) {
                Some(Node::Dict(inner)) if pickle.text(key) == Some(wanted) => Some(inner),
                _ => None,
            })
        });
        found = inner.map(Vec::as_slice).filter(|inner| inner.iter().any(is_tensor)).ok_or_else(|| {
            let keys: Vec<_> = items.iter().filter_map(|&(key, _)| pickle.text(key)).take(8).map(cut).collect();
            format!(
                "a dict without tensors: expected them in it or in its \"state_dict\" or \"model\", found the keys [{}]",
                keys.join(", ")
            )
        })?;
    }
    if found.len() > MAX_VISITS {
        return Err(format!("a dict of {} items: expected at most {MAX_VISITS}", found.len()));
    }
    let named = found.iter().filter(|item| is_tensor(item)).filter_map(|&(key, value)| {
        // A tensor that is filed under a number is nobody's weight.
        pickle.text(key).map(|name| (name, value))
    });
    named
        .map(|(name, value)| {
            if name.len() > MAX_NAME {
                return Err(format!("{}: a name longer than {MAX_NAME} bytes", cut(name)));
            }
            record(pickle, value, name.to_owned())
        })
        .collect()
}

fn record(pickle: &Pickle<'_>, value: Value, name: String) -> Result<Record, String> {
    let Some(&Node::Tensor { storage, offset, size, stride }) = pickle.node(value) else {
        return Err(format!("{name}: not a tensor"));
    };
    let Some(&Node::Storage { kind, key, count }) = pickle.node(Value::Node(storage)) else {
        return Err(format!("tensor {name}: it has no storage"));
    };
    let count_of = |what: &str, number: i64| {
        usize::try_from(number).map_err(|_| format!("tensor {name}: {what} is {number}: expected 0 or more"))
    };
    Ok(Record {
        storage_count: count_of("its storage's length", count)?,
        offset: count_of("its offset", offset)?,
        shape: pickle.sizes(size).map_err(|what| format!("tensor {name}: shape: {what}"))?,
        strides: pickle.sizes(stride).map_err(|what| format!("tensor {name}: strides: {what}"))?,
        kind,
        key,
        name,
    })
}
