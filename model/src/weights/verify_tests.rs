//! Hashes of published files: checked, remembered, and remembered only for the file as it was.

use std::ffi::OsString;
use std::fs;

use tempfile::TempDir;

use super::super::Weights;
use super::*;
use crate::card::{License, PublishedWeights};

struct Setup {
    folder: TempDir,
    path: PathBuf,
    card: ModelCard,
    environment: Environment,
}

const NAME: &str = "published.safetensors";

fn digest_of(path: &Path) -> String {
    hex(&Sha256::digest(fs::read(path).unwrap()))
}

impl Setup {
    /// A checkpoint under its published name.
    fn new() -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        fs::copy(data.join("tiny-sapiens2.bf16.safetensors"), &path).unwrap();
        let mut card = ModelCard::load(&data.join("tiny-sapiens2.toml")).unwrap();
        card.weights = Some(PublishedWeights {
            license: License::Other("MIT".into()),
            repository: None,
            file: Some(NAME.into()),
            sha256: Some(digest_of(&path)[..12].into()),
            miou: None,
            checkpoint_folders: Vec::new(),
        });
        let cache = folder.path().join("cache").into_os_string();
        let environment = Environment::from_vars([("XDG_CACHE_HOME".to_owned(), cache)]);
        Self { folder, path, card, environment }
    }

    fn open(&self) -> Result<Weights> {
        Weights::open_in(&self.path, &self.card, &self.environment)
    }

    fn expect(&mut self, digits: &str) {
        self.card.weights.as_mut().unwrap().sha256 = Some(digits.into());
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join(format!("{NAME}.sha256.json"))
    }

    fn cached_record(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("cache/sapiensseg/verified")).ok()?;
        entries.map(|entry| entry.unwrap().path()).next()
    }
}

#[test]
fn published_files_have_their_published_hash() {
    let mut setup = Setup::new();
    let expected = digest_of(&setup.path);
    let weights = setup.open().unwrap();
    assert_eq!(weights.sha256(), Some(expected.as_str()));
    assert!(weights.describe().contains(&expected));

    setup.expect("00000000");
    let error = setup.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HashMismatch);
    let message = error.to_string();
    assert!(
        message.contains(&format!(
            "{NAME}: expected the SHA-256 of the published file, 00000000..., found {expected}"
        )),
        "{message}"
    );

    // Under another name it is somebody's own model.
    let renamed = setup.folder.path().join("mine.safetensors");
    fs::rename(&setup.path, &renamed).unwrap();
    let weights = Weights::open_in(&renamed, &setup.card, &setup.environment).unwrap();
    assert_eq!(weights.sha256(), None);
}

#[test]
fn digests_are_remembered_beside_the_file() {
    let mut setup = Setup::new();
    setup.open().unwrap();
    assert_eq!(setup.cached_record(), None);
    // A digest that only the record can have come from.
    let mut record: Record = serde_json::from_slice(&fs::read(setup.record()).unwrap()).unwrap();
    record.sha256 = "ab".repeat(32);
    fs::write(setup.record(), serde_json::to_vec(&record).unwrap()).unwrap();
    setup.expect("abababab");
    assert_eq!(setup.open().unwrap().sha256(), Some(record.sha256.as_str()));
}

#[test]
fn stale_and_damaged_records_are_passed_over() {
    let setup = Setup::new();
    let expected = digest_of(&setup.path);
    setup.open().unwrap();
    let good: serde_json::Value = serde_json::from_slice(&fs::read(setup.record()).unwrap()).unwrap();
    let lie = "ab".repeat(32);
    for (key, value) in
        [("size", 1.into()), ("modified_ns", 1.into()), ("inode", 1.into()), ("sha256", "ab".into())]
    {
        let mut stale = good.clone();
        stale["sha256"] = lie.clone().into();
        stale[key] = value;
        fs::write(setup.record(), stale.to_string()).unwrap();
        assert_eq!(setup.open().unwrap().sha256(), Some(expected.as_str()), "{key}");
        let written: serde_json::Value = serde_json::from_slice(&fs::read(setup.record()).unwrap()).unwrap();
        assert_eq!(written, good);
    }
    for damaged in [&b""[..], b"{", b"\xff\xff", b"[]", &vec![b' '; 1 << 17]] {
        fs::write(setup.record(), damaged).unwrap();
        assert_eq!(setup.open().unwrap().sha256(), Some(expected.as_str()));
    }
}

#[test]
fn a_file_that_changed_is_hashed_again() {
    let setup = Setup::new();
    setup.open().unwrap();
    let mut bytes = fs::read(&setup.path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&setup.path, bytes).unwrap();
    assert_eq!(setup.open().unwrap_err().kind(), ErrorKind::HashMismatch);
}

#[test]
fn where_the_folder_takes_no_record_the_cache_does() {
    let setup = Setup::new();
    // Root may write anywhere, so a folder in the record's place stands for one that may not be written.
    fs::create_dir(setup.record()).unwrap();
    setup.open().unwrap();
    let cached = setup.cached_record().unwrap();
    let record: Record = serde_json::from_slice(&fs::read(cached).unwrap()).unwrap();
    assert_eq!(record.sha256, digest_of(&setup.path));
    setup.open().unwrap();
    // With nowhere to write it is hashed each time.
    assert!(Weights::open_in(&setup.path, &setup.card, &Environment::default()).unwrap().sha256().is_some());
    let file_as_cache = [("XDG_CACHE_HOME".to_owned(), OsString::from("/dev/null"))];
    let environment = Environment::from_vars(file_as_cache);
    assert!(Weights::open_in(&setup.path, &setup.card, &environment).unwrap().sha256().is_some());
}

#[cfg(unix)]
#[test]
fn the_hubs_cache_tells_the_hash_and_is_not_written_to() {
    let mut setup = Setup::new();
    setup.card.weights.as_mut().unwrap().sha256 = None;
    assert_eq!(setup.open().unwrap().sha256(), None);

    let expected = digest_of(&setup.path);
    let blobs = setup.folder.path().join("blobs");
    fs::create_dir(&blobs).unwrap();
    for (name, good) in [(expected.clone(), true), ("ab".repeat(32), false)] {
        let blob = blobs.join(name);
        fs::rename(fs::canonicalize(&setup.path).unwrap(), &blob).unwrap();
        let _ = fs::remove_file(&setup.path);
        std::os::unix::fs::symlink(&blob, &setup.path).unwrap();
        match setup.open() {
            Ok(weights) => assert!(good && weights.sha256() == Some(expected.as_str())),
            Err(error) => assert!(!good && error.kind() == ErrorKind::HashMismatch, "{error}"),
        }
        assert!(!setup.record().exists());
        assert!(setup.cached_record().is_some());
    }
}

#[test]
fn a_digest_that_was_recorded_is_not_worked_out_again() {
    let setup = Setup::new();
    // Not the file's: only the record can have it from here.
    let digits = "0123456789abcdef".repeat(4);
    record(&setup.path, &FileIdentity::of(&setup.path).unwrap(), &digits, &setup.environment);
    assert_eq!(digest(&Map::open(&setup.path).unwrap(), &setup.environment).unwrap(), digits);
    // Of another file under the name it says nothing.
    let bytes = fs::read(&setup.path).unwrap();
    fs::write(&setup.path, &bytes[1..]).unwrap();
    assert_eq!(digest(&Map::open(&setup.path).unwrap(), &setup.environment).unwrap(), digest_of(&setup.path));
}
