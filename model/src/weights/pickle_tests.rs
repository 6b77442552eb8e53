//! The stack machine by itself: what it reads, and thousands of damaged pickles.

use super::super::state;
use super::*;

fn read(bytes: &[u8]) -> Result<String, String> {
    Pickle::read(bytes).map(|pickle| format!("{:?} {:?}", pickle.root(), pickle.nodes.len()))
}

/// The pickle of the tiny first-family state dict, which is stored in its archive as it is.
fn reference() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/tiny-sapiens.pth");
    let archive = std::fs::read(path).unwrap();
    let start = archive.windows(3).position(|window| window == b"\x80\x02}").unwrap();
    archive[start..start + 9742].to_vec()
}

#[test]
fn numbers_are_read() {
    for (bytes, expected) in [
        (&b"\x80\x02K\xff."[..], 255),
        (b"\x80\x02M\x01\x02.", 0x201),
        (b"\x80\x02J\xff\xff\xff\xff.", -1),
        (b"\x80\x02\x8a\x00.", 0),
        (b"\x80\x02\x8a\x01\xfe.", -2),
        (b"\x80\x02\x8a\x05\x00\x00\x00\x00\x01.", 1 << 32),
        (b"\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", i64::MAX),
    ] {
        assert_eq!(Pickle::read(bytes).unwrap().root(), Value::Int(expected));
    }
    for bytes in [&b"\x80\x02N."[..], b"\x80\x02\x88.", b"\x80\x02G01234567.", b"\x80\x02\x8a\x09123456789."]
    {
        assert_eq!(Pickle::read(bytes).unwrap().root(), Value::Opaque);
    }
}

#[test]
fn tuples_lists_and_dicts_are_read() {
    let pickle =
        Pickle::read(b"\x80\x02}q\x01X\x01\x00\x00\x00a(K\x01K\x02tq\x02s(X\x01\x00\x00\x00bh\x02u.")
            .unwrap();
    let Some(Node::Dict(items)) = pickle.node(pickle.root()) else { panic!("no dict") };
    let keys: Vec<_> = items.iter().map(|&(key, _)| pickle.text(key).unwrap()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(items[0].1, items[1].1);
    let Value::Node(tuple) = items[0].1 else { panic!("no tuple") };
    assert_eq!(pickle.sizes(tuple).unwrap(), [1, 2]);

    let pickle = Pickle::read(b"\x80\x02](K\x01K\x02eK\x03a.").unwrap();
    assert!(matches!(pickle.node(pickle.root()), Some(Node::List(items)) if items.len() == 3));
}

#[test]
fn what_makes_no_sense_is_an_error_with_its_place() {
    for (bytes, expected) in [
        (&b""[..], "byte 0: the pickle ends early"),
        (b"\x80\x02", "byte 2: the pickle ends early"),
        (b"\x80\x02.", "byte 2: a value is expected"),
        (b"\x80\x06N.", "byte 0: pickle protocol 6: expected 2"),
        (b"\x80\x02t.", "byte 2: items up to a mark that was never set"),
        (b"\x80\x02K\x01(\x85.", "byte 5: a tuple of more than there is"),
        (b"\x80\x02K\x01(0.", "byte 5: opcode POP"),
        (b"\x80\x02h\x07.", "byte 2: nothing was memorized as 7"),
        (b"\x80\x02q\x07.", "byte 2: the stack is empty"),
        (b"\x80\x02]K\x01K\x02s.", "byte 7: SETITEM on something that is no dict"),
        (b"\x80\x02}(K\x01u.", "byte 6: SETITEMS with a key that has no value"),
        (b"\x80\x02}K\x01a.", "byte 5: APPEND on something that is no list"),
        (b"\x80\x02K\x01Q.", "byte 4: BINPERSID: expected a tuple"),
        (b"\x80\x02K\x01}b.", "byte 5: BUILD of something that is no object"),
        (b"\x80\x02X\x02\x00\x00\x00\xff\xfe.", "byte 2: a string that is not UTF-8"),
        (b"\x80\x02cos\nsystem", "byte 2: a name without an end"),
        (b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.", "OrderedDict with arguments"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "_rebuild_tensor_v2: expected (storage"),
        (b"\x80\x02c__torch__\nA\n(K\x01t\x81.", "NEWOBJ with arguments"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ of something that is no TorchScript class"),
        (b"\x80\x02c__torch__\nA\n)\x81Nb.", "BUILD of an object with something other than a dict"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(expected), "{error}, expected {expected}");
    }
}

#[test]
fn reference_pickle_has_its_tensors() {
    let bytes = reference();
    let pickle = Pickle::read(&bytes).unwrap();
    let (kind, records) = state::tensors(&pickle).unwrap();
    assert_eq!((kind, records.len()), (state::Kind::StateDict, 52));
    assert_eq!(records[0].name, "backbone.pos_embed");
    assert_eq!(
        (records[0].shape.as_slice(), records[0].strides.as_slice()),
        (&[1, 48, 64][..], &[3072, 64, 1][..])
    );
}

#[test]
fn every_cut_of_the_reference_pickle_is_an_error() {
    let bytes = reference();
    for len in 0..bytes.len() {
        Pickle::read(&bytes[..len]).unwrap_err();
    }
}

#[test]
fn damaged_reference_pickles_never_panic() {
    let original = reference();
    let mut random = 7u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((random >> 33) as usize) % limit
    };
    let opcodes = b".cqrhjt)(}]XNJKMGQRsuaeb\x81\x85\x87\x88\x8a\x00\xff";
    for _ in 0..20_000 {
        let mut bytes = original.clone();
        for _ in 0..=below(4) {
            let at = below(bytes.len());
            match below(4) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes[at] = opcodes[below(opcodes.len())],
                2 => drop(bytes.drain(at..(at + 1 + below(20)).min(original.len() / 2).max(at))),
                _ => bytes.insert(at, opcodes[below(opcodes.len())]),
            }
        }
        if let Ok(pickle) = Pickle::read(&bytes) {
            assert!(pickle.nodes.len() <= bytes.len());
            let _ = state::tensors(&pickle);
        }
    }
}
