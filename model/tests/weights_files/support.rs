//! Builds checkpoints of every kind in temporary folders, right and wrong ones.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView, serialize};
use sapiens_model::weights::expected_tensors;
use sapiens_model::{ErrorKind, ModelCard, SegmentError, Weights};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

pub fn tiny(name: &str) -> ModelCard {
    ModelCard::load(&data(&format!("{name}.toml"))).unwrap()
}

/// The smallest network of the first family: 17 000 values.
pub fn micro() -> ModelCard {
    card("id = \"micro\"\nfamily = \"sapiens\"\nclasses = \"sapiens-28\"", "")
}

/// The smallest of the second; its head dim is 8.
pub fn micro2() -> ModelCard {
    card("id = \"micro2\"\nfamily = \"sapiens2\"\nclasses = \"sapiens2-29\"", "full_kv_layers = 1")
}

fn card(head: &str, network: &str) -> ModelCard {
    let text = format!(
        "{head}\n[network]\nembed_dim = 16\nlayers = 1\nheads = 2\nffn_dim = 16\ndeconv_channels = [4]\n\
         conv_channels = [4]\n{network}\n[input]\nheight = 64\nwidth = 48\nmean = [0.0, 0.0, 0.0]\n\
         std = [1.0, 1.0, 1.0]\nresize = \"linear\"\n"
    );
    ModelCard::from_toml(&text, "test").unwrap()
}

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl Tensor {
    pub fn new(name: &str, shape: &[usize]) -> Self {
        let values = (0..shape.iter().product::<usize>()).map(|value| value as f32).collect();
        Self { name: name.into(), shape: shape.to_vec(), values }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// The card's tensors with generated values.
pub fn tensors(card: &ModelCard) -> Vec<Tensor> {
    let weights = Weights::generated(card, 5);
    expected_tensors(card)
        .into_iter()
        .map(|spec| Tensor {
            values: weights.tensor_f32(&spec.name).unwrap(),
            name: spec.name,
            shape: spec.shape,
        })
        .collect()
}

pub fn find<'a>(tensors: &'a mut [Tensor], name: &str) -> &'a mut Tensor {
    tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
}

/// Those tensors as a safetensors file.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let bytes: Vec<_> = tensors.iter().map(Tensor::bytes).collect();
    let views = tensors.iter().zip(&bytes).map(|(tensor, bytes)| {
        (tensor.name.as_str(), TensorView::new(Dtype::F32, tensor.shape.clone(), bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

/// A safetensors file of a header as it stands and so many zeros.
pub fn raw_safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A pickle, opcode by opcode.
#[derive(Default)]
pub struct Pickle(pub Vec<u8>);

impl Pickle {
    pub fn new() -> Self {
        Self(vec![0x80, 2])
    }

    pub fn op(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn global(self, module: &str, name: &str) -> Self {
        self.op(format!("c{module}\n{name}\n").as_bytes())
    }

    pub fn text(self, text: &str) -> Self {
        self.op(b"X").op(&(text.len() as u32).to_le_bytes()).op(text.as_bytes())
    }

    pub fn int(self, value: i64) -> Self {
        self.op(&[0x8a, 8]).op(&value.to_le_bytes())
    }

    pub fn sizes(self, values: &[i64]) -> Self {
        values.iter().fold(self.op(b"("), |pickle, &value| pickle.int(value)).op(b"t")
    }

    pub fn tensor(self, view: &View<'_>) -> Self {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .op(b"((")
            .text("storage")
            .global("torch", view.storage)
            .text(&view.key)
            .text("cuda:0")
            .int(view.count)
            .op(b"tQ")
            .int(view.offset)
            .sizes(&view.shape)
            .sizes(&view.strides)
            .op(b"\x89")
            .global("collections", "OrderedDict")
            .op(b")RtR")
    }

    pub fn stop(self) -> Vec<u8> {
        self.op(b".").0
    }
}

/// A tensor as a pickle describes it.
#[derive(Clone, Debug)]
pub struct View<'a> {
    pub storage: &'a str,
    pub key: String,
    pub count: i64,
    pub offset: i64,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
}

impl View<'_> {
    /// Row-major, over a storage of its own.
    pub fn plain(key: &str, shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim] as i64;
        }
        View {
            storage: "FloatStorage",
            key: key.into(),
            count: shape.iter().product::<usize>() as i64,
            offset: 0,
            shape: shape.iter().map(|&dim| dim as i64).collect(),
            strides,
        }
    }
}

/// An archive to be written: entries under `top/`.
pub struct Archive {
    pub entries: Vec<(String, Vec<u8>)>,
    pub method: CompressionMethod,
}

impl Archive {
    pub fn new(data_pkl: Vec<u8>) -> Self {
        Self { entries: vec![("data.pkl".into(), data_pkl)], method: CompressionMethod::Stored }
    }

    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.entries.push((name.into(), bytes.into()));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(self.method);
        for (name, bytes) in &self.entries {
            zip.start_file(format!("top/{name}"), options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }
}

/// How a state dict is put together.
pub struct StateDict {
    pub views: Vec<(String, View<'static>)>,
    pub storages: Vec<(String, Vec<u8>)>,
}

impl StateDict {
    pub fn of(tensors: &[Tensor]) -> Self {
        let mut dict = Self { views: Vec::new(), storages: Vec::new() };
        for (index, tensor) in tensors.iter().enumerate() {
            dict.views.push((tensor.name.clone(), View::plain(&index.to_string(), &tensor.shape)));
            dict.storages.push((index.to_string(), tensor.bytes()));
        }
        dict
    }

    pub fn view(&mut self, name: &str) -> &mut View<'static> {
        &mut self.views.iter_mut().find(|(other, _)| other == name).unwrap().1
    }

    /// The dict's pickle, under `key` of another dict if one is given.
    pub fn pickle(&self, key: Option<&str>) -> Vec<u8> {
        let mut pickle = Pickle::new();
        if let Some(key) = key {
            pickle = pickle.op(b"}").text("epoch").op(b"K\x07s").text(key);
        }
        pickle = pickle.global("collections", "OrderedDict").op(b")R(");
        for (name, view) in &self.views {
            pickle = pickle.text(name).tensor(view);
        }
        pickle = pickle.op(b"u");
        // torch keeps the modules' versions as an attribute of the dict.
        pickle = pickle.op(b"}").text("_metadata").op(b"}sb");
        if key.is_some() {
            pickle = pickle.op(b"s");
        }
        pickle.stop()
    }

    pub fn archive(&self, pickle: Vec<u8>) -> Archive {
        let mut archive = Archive::new(pickle).with("version", "3\n").with("byteorder", "little");
        for (key, bytes) in &self.storages {
            archive = archive.with(&format!("data/{key}"), bytes.clone());
        }
        archive
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.archive(self.pickle(None)).bytes()
    }
}

/// Opens the bytes as a file.
pub fn open(bytes: &[u8], card: &ModelCard) -> Result<Weights, SegmentError> {
    let folder = folder();
    Weights::open(&write(&folder, "weights.bin", bytes), card)
}

/// The message of the error that those bytes give, which must be of that kind.
pub fn refused(bytes: &[u8], card: &ModelCard, kind: ErrorKind) -> String {
    let error = open(bytes, card).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    assert!(message.contains("weights.bin"), "names no file: {message}");
    message
}

/// Holds every tensor against what was written.
pub fn assert_values(weights: &Weights, tensors: &[Tensor]) {
    for tensor in tensors {
        assert_eq!(weights.shape(&tensor.name), Some(&tensor.shape[..]), "{}", tensor.name);
        assert_eq!(weights.tensor_f32(&tensor.name).unwrap(), tensor.values, "{}", tensor.name);
    }
}
