//! A pickle as data: the opcodes that torch writes, on a small stack machine that never calls anything.
//!
//! It knows five globals by name and refuses all others; it refuses to know what the objects mean. Every
//! composite lives in one flat arena and refers to others by index, so that neither deep nesting nor cycles
//! can overflow the stack, and a pickle can't make it hold more than a constant times its own length.

use super::tensor::MAX_DIMS;

/// Limits far above any checkpoint (the largest Sapiens has about 10 000 objects), far below trouble.
const MAX_OBJECTS: usize = 1 << 20;
const MAX_STACK: usize = 1 << 20;
const MAX_MEMO: usize = 1 << 20;
const MAX_MARKS: usize = 1 << 10;

/// The storage types of torch, as pickles name them, and the bytes of one value.
const STORAGES: [(&str, usize); 13] = [
    ("FloatStorage", 4),
    ("HalfStorage", 2),
    ("BFloat16Storage", 2),
    ("DoubleStorage", 8),
    ("LongStorage", 8),
    ("IntStorage", 4),
    ("ShortStorage", 2),
    ("CharStorage", 1),
    ("ByteStorage", 1),
    ("BoolStorage", 1),
    ("UntypedStorage", 1),
    ("ComplexFloatStorage", 8),
    ("ComplexDoubleStorage", 16),
];

/// A string of the pickle, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    start: usize,
    end: usize,
}

/// A storage type: its row in the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StorageType(usize);

impl StorageType {
    /// torch's name for it.
    pub fn name(self) -> &'static str {
        STORAGES[self.0].0
    }

    /// Bytes of one value.
    pub fn size(self) -> usize {
        STORAGES[self.0].1
    }
}

/// What a GLOBAL may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    /// A class of a TorchScript archive.
    TorchScriptClass,
    RebuildTensor,
    OrderedDict,
    Storage(StorageType),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// None, a boolean, a float or an integer beyond 64 bits: nothing that a checkpoint needs.
    Opaque,
    Int(i64),
    Text(Text),
    Global(Global),
    Node(usize),
}

/// Something made of values. Indices go into [`Pickle::node`].
#[derive(Debug)]
pub(super) enum Node {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// An object of a TorchScript class, and the dict of its attributes.
    Object {
        state: Option<usize>,
    },
    Storage {
        kind: StorageType,
        key: Text,
        count: i64,
    },
    /// What `_rebuild_tensor_v2` was to be called with. `size` and `stride` are tuples.
    Tensor {
        storage: usize,
        offset: i64,
        size: usize,
        stride: usize,
    },
}

/// A read pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    data: &'a [u8],
    nodes: Vec<Node>,
    root: Value,
}

impl<'a> Pickle<'a> {
    /// Reads `data` up to STOP. An error says at which byte.
    pub fn read(data: &'a [u8]) -> Result<Self, String> {
        let mut machine = Machine {
            data,
            position: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Default::default(),
            nodes: Vec::new(),
        };
        loop {
            let at = machine.position;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => return Ok(Self { data, nodes: machine.nodes, root }),
                Err(what) => return Err(format!("byte {at}: {what}")),
            }
        }
    }

    /// What the pickle is of.
    pub fn root(&self) -> Value {
        self.root
    }

    /// The composite that `value` is.
    pub fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(index) => self.nodes.get(index),
            _ => None,
        }
    }

    /// The string that `value` is.
    pub fn text(&self, value: Value) -> Option<&'a str> {
        match value {
            Value::Text(text) => Some(self.str(text)),
            _ => None,
        }
    }

    /// The string at a place in the pickle.
    pub fn str(&self, text: Text) -> &'a str {
        // It was found to be UTF-8 when it was read.
        std::str::from_utf8(&self.data[text.start..text.end]).unwrap_or_default()
    }

    /// The numbers, none negative, that tuple `index` is of.
    pub fn sizes(&self, index: usize) -> Result<Vec<usize>, String> {
        let Some(Node::Tuple(values)) = self.nodes.get(index) else {
            return Err("expected a tuple of numbers".into());
        };
        if values.len() > MAX_DIMS {
            return Err(format!("{} dimensions: expected at most {MAX_DIMS}", values.len()));
        }
        let size = |value: &Value| match value {
            Value::Int(number) => {
                usize::try_from(*number).map_err(|_| format!("{number} where a size or stride is expected"))
            }
            _ => Err("expected a tuple of numbers".to_owned()),
        };
        values.iter().map(size).collect()
    }
}

struct Machine<'a> {
    data: &'a [u8],
    position: usize,
    stack: Vec<Value>,
    /// Stack lengths at each MARK.
    marks: Vec<usize>,
    memo: std::collections::HashMap<u32, Value>,
    nodes: Vec<Node>,
}

impl<'a> Machine<'a> {
    /// Runs one opcode; the root, if it was STOP.
    fn step(&mut self) -> Result<Option<Value>, String> {
        let [opcode] = self.take_array()?;
        match opcode {
            b'.' => return self.pop().map(Some), // STOP
            0x80 => {
                let [version] = self.take_array()?;
                if !(2..=5).contains(&version) {
                    return Err(format!("pickle protocol {version}: expected 2"));
                }
            }
            b'c' => {
                let global = self.global()?;
                self.push(Value::Global(global))?;
            }
            b'q' => {
                let [index] = self.take_array()?;
                self.memorize(u32::from(index))?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.take_array()?);
                self.memorize(index)?;
            }
            b'h' => {
                let [index] = self.take_array()?;
                self.recall(u32::from(index))?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take_array()?);
                self.recall(index)?;
            }
            b')' => self.push_node(Node::Tuple(Vec::new()))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.push_node(Node::Tuple(items))?;
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let start = self.stack.len().checked_sub(count).filter(|&start| start >= self.floor());
                let start = start.ok_or("a tuple of more than there is on the stack")?;
                let items = self.stack.split_off(start);
                self.push_node(Node::Tuple(items))?;
            }
            0x81 => self.new_object()?,
            b'}' => self.push_node(Node::Dict(Vec::new()))?,
            b']' => self.push_node(Node::List(Vec::new()))?,
            b'(' => {
                if self.marks.len() >= MAX_MARKS {
                    return Err(format!("nested deeper than {MAX_MARKS} marks"));
                }
                self.marks.push(self.stack.len());
            }
            b'X' => {
                let len = u32::from_le_bytes(self.take_array()?) as usize;
                let start = self.position;
                let bytes = self.take(len)?;
                std::str::from_utf8(bytes).map_err(|error| format!("a string that is not UTF-8: {error}"))?;
                self.push(Value::Text(Text { start, end: start + len }))?;
            }
            b'N' | 0x88 | 0x89 => self.push(Value::Opaque)?, // NONE NEWTRUE NEWFALSE
            b'J' => {
                let number = i32::from_le_bytes(self.take_array()?);
                self.push(Value::Int(number.into()))?;
            }
            b'K' => {
                let [number] = self.take_array()?;
                self.push(Value::Int(number.into()))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.take_array()?);
                self.push(Value::Int(number.into()))?;
            }
            0x8a => {
                let [len] = self.take_array()?;
                let bytes = self.take(usize::from(len))?;
                self.push(long(bytes))?;
            }
            b'G' => {
                let _float: [u8; 8] = self.take_array()?;
                self.push(Value::Opaque)?;
            }
            b'Q' => self.persistent_id()?,
            b'R' => self.reduce()?,
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.top_dict("SETITEM")?.push((key, value));
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                if !items.len().is_multiple_of(2) {
                    return Err("SETITEMS with a key that has no value".into());
                }
                let (pairs, _) = items.as_chunks::<2>();
                self.top_dict("SETITEMS")?.extend(pairs.iter().map(|&[key, value]| (key, value)));
            }
            b'a' => {
                let item = self.pop()?;
                self.top_list("APPEND")?.push(item);
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.top_list("APPENDS")?.extend(items);
            }
            b'b' => self.build()?,
            _ => return Err(refused_opcode(opcode)),
        }
        Ok(None)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let rest = &self.data[self.position..];
        let bytes = rest.get(..len).ok_or_else(|| {
            format!("the pickle ends early: expected {len} more bytes, found {}", rest.len())
        })?;
        self.position += len;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take_line(&mut self) -> Result<&'a str, String> {
        let rest = &self.data[self.position..];
        let len = rest.iter().position(|&byte| byte == b'\n').ok_or("a name without an end")?;
        let line = self.take(len)?;
        self.position += 1;
        std::str::from_utf8(line).map_err(|error| format!("a name that is not UTF-8: {error}"))
    }

    /// Stack length below which the items belong to an earlier MARK.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        if self.stack.len() >= MAX_STACK {
            return Err(format!("more than {MAX_STACK} values on the stack"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Result<(), String> {
        if self.nodes.len() >= MAX_OBJECTS {
            return Err(format!("more than {MAX_OBJECTS} objects"));
        }
        self.nodes.push(node);
        self.push(Value::Node(self.nodes.len() - 1))
    }

    fn pop(&mut self) -> Result<Value, String> {
        if self.stack.len() <= self.floor() {
            return Err("a value is expected on the stack, which has none".into());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty".into())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.marks.pop().ok_or("items up to a mark that was never set")?;
        Ok(self.stack.split_off(mark))
    }

    fn memorize(&mut self, index: u32) -> Result<(), String> {
        let top = *self.stack.last().ok_or("the stack is empty: nothing to memorize")?;
        if self.memo.len() >= MAX_MEMO {
            return Err(format!("more than {MAX_MEMO} memorized values"));
        }
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), String> {
        let value = *self.memo.get(&index).ok_or_else(|| format!("nothing was memorized as {index}"))?;
        self.push(value)
    }

    fn global(&mut self) -> Result<Global, String> {
        let (module, name) = (self.take_line()?, self.take_line()?);
        let storage = || STORAGES.iter().position(|(storage, _)| *storage == name);
        match (module, name) {
            ("torch._utils", "_rebuild_tensor_v2") => return Ok(Global::RebuildTensor),
            ("collections", "OrderedDict") => return Ok(Global::OrderedDict),
            ("torch", _) => {
                if let Some(row) = storage() {
                    return Ok(Global::Storage(StorageType(row)));
                }
            }
            _ if module == "__torch__" || module.starts_with("__torch__.") => {
                return Ok(Global::TorchScriptClass);
            }
            _ => {}
        }
        let (module, name) = (cut(module), cut(name));
        Err(format!(
            "it wants {module}.{name}: expected nothing but tensors, dicts and TorchScript classes; nothing in a checkpoint is ever called"
        ))
    }

    fn new_object(&mut self) -> Result<(), String> {
        let (args, class) = (self.pop()?, self.pop()?);
        if class != Value::Global(Global::TorchScriptClass) {
            return Err("NEWOBJ of something that is no TorchScript class".into());
        }
        if !self.is_empty_tuple(args) {
            return Err("NEWOBJ with arguments: expected none".into());
        }
        self.push_node(Node::Object { state: None })
    }

    fn is_empty_tuple(&self, value: Value) -> bool {
        matches!(self.get(value), Some(Node::Tuple(items)) if items.is_empty())
    }

    fn get(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(index) => self.nodes.get(index),
            _ => None,
        }
    }

    fn persistent_id(&mut self) -> Result<(), String> {
        let id = self.pop()?;
        let Some(Node::Tuple(items)) = self.get(id) else {
            return Err("BINPERSID: expected a tuple ('storage', type, key, device, count)".into());
        };
        // The device (cuda:0, say) is where the tensor was when it was saved: of no consequence here.
        let &[
            Value::Text(word),
            Value::Global(Global::Storage(kind)),
            Value::Text(key),
            Value::Text(_),
            Value::Int(count),
        ] = items.as_slice()
        else {
            return Err("BINPERSID: expected a tuple ('storage', type, key, device, count)".into());
        };
        if &self.data[word.start..word.end] != b"storage" {
            return Err("BINPERSID: expected 'storage' first".into());
        }
        self.push_node(Node::Storage { kind, key, count })
    }

    fn reduce(&mut self) -> Result<(), String> {
        let (args, callable) = (self.pop()?, self.pop()?);
        match callable {
            Value::Global(Global::OrderedDict) => {
                if !self.is_empty_tuple(args) {
                    return Err("collections.OrderedDict with arguments: expected none".into());
                }
                self.push_node(Node::Dict(Vec::new()))
            }
            Value::Global(Global::RebuildTensor) => {
                // Then requires_grad, hooks and perhaps metadata.
                let node = match self.get(args) {
                    Some(Node::Tuple(items)) => match items.as_slice() {
                        &[
                            Value::Node(storage),
                            Value::Int(offset),
                            Value::Node(size),
                            Value::Node(stride),
                            ..,
                        ] => Node::Tensor { storage, offset, size, stride },
                        _ => return Err(WRONG_TENSOR.into()),
                    },
                    _ => return Err(WRONG_TENSOR.into()),
                };
                self.push_node(node)
            }
            _ => Err("REDUCE of something that is neither a tensor nor an OrderedDict".into()),
        }
    }

    fn build(&mut self) -> Result<(), String> {
        let (new_state, target) = (self.pop()?, self.pop()?);
        let Value::Node(index) = target else {
            return Err("BUILD of something that is no object".into());
        };
        let dict = match (new_state, self.get(new_state)) {
            (Value::Node(dict), Some(Node::Dict(_))) => Some(dict),
            _ => None,
        };
        match (self.nodes.get_mut(index), dict) {
            (Some(Node::Object { state }), Some(dict)) => *state = Some(dict),
            (Some(Node::Object { .. }), None) => {
                return Err("BUILD of an object with something other than a dict".into());
            }
            // Attributes of an OrderedDict (a state dict's `_metadata`), not items of it.
            (Some(Node::Dict(_)), _) => {}
            _ => return Err("BUILD of something that is no object".into()),
        }
        self.push(target)
    }

    fn top_dict(&mut self, opcode: &str) -> Result<&mut Vec<(Value, Value)>, String> {
        match self.top_node() {
            Some(Node::Dict(items)) => Ok(items),
            _ => Err(format!("{opcode} on something that is no dict")),
        }
    }

    fn top_list(&mut self, opcode: &str) -> Result<&mut Vec<Value>, String> {
        match self.top_node() {
            Some(Node::List(items)) => Ok(items),
            _ => Err(format!("{opcode} on something that is no list")),
        }
    }

    fn top_node(&mut self) -> Option<&mut Node> {
        match self.stack.last() {
            Some(&Value::Node(index)) if self.stack.len() > self.floor() => self.nodes.get_mut(index),
            _ => None,
        }
    }
}

const WRONG_TENSOR: &str =
    "torch._utils._rebuild_tensor_v2: expected (storage, offset, size, stride, requires_grad, hooks)";

/// A little-endian two's-complement number of any length.
fn long(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Opaque;
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(wide))
}

/// As much of a name as fits a message.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(120) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn refused_opcode(opcode: u8) -> String {
    let name = match opcode {
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'F' => "FLOAT",
        b'I' => "INT",
        b'L' => "LONG",
        b'P' => "PERSID",
        b'S' => "STRING",
        b'T' => "BINSTRING",
        b'U' => "SHORT_BINSTRING",
        b'V' => "UNICODE",
        b'd' => "DICT",
        b'g' => "GET",
        b'i' => "INST",
        b'l' => "LIST",
        b'o' => "OBJ",
        b'p' => "PUT",
        b'B' => "BINBYTES",
        b'C' => "SHORT_BINBYTES",
        0x82..=0x84 => "EXT",
        0x8b => "LONG4",
        0x8c => "SHORT_BINUNICODE",
        0x8d => "BINUNICODE8",
        0x8e => "BINBYTES8",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x94 => "MEMOIZE",
        0x95 => "FRAME",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return format!("0x{opcode:02x} is no pickle opcode"),
    };
    format!("opcode {name}: expected only what torch.save and torch.jit.save write (pickle protocol 2)")
}

#[cfg(test)]
#[path = "pickle_tests.rs"]
mod tests;
