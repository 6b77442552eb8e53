//! Where weights are found, in which order, and what is said when they are not.

use std::ffi::OsString;
use std::fs;

use tempfile::TempDir;

use super::super::Weights;
use super::*;
use crate::Variant;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.0.path().join(inner)
    }

    fn file(&self, inner: &str) -> PathBuf {
        let path = self.path(inner);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "weights").unwrap();
        path
    }

    /// An environment whose every variable points into this folder.
    fn environment(&self, names: &[&str]) -> Environment {
        let folders = [
            ("HOME", "home"),
            (CHECKPOINT_ROOT, "root"),
            ("XDG_CACHE_HOME", "cache"),
            (HUB_CACHE, "hub"),
            (HUB_HOME, "hf"),
        ];
        let set = folders.iter().filter(|(name, _)| names.contains(name));
        Environment::from_vars(
            set.map(|(name, folder)| (name.to_string(), self.path(folder).into_os_string())),
        )
    }

    fn everything(&self) -> Environment {
        self.environment(&["HOME", CHECKPOINT_ROOT, "XDG_CACHE_HOME", HUB_CACHE, HUB_HOME])
    }
}

fn card(nick: &str) -> ModelCard {
    ModelCard::of(nick.parse::<Variant>().unwrap())
}

const FILE: &str = "sapiens_0.3b_goliath_best_goliath_mIoU_7673_epoch_194_torchscript.pt2";
const REPOSITORY: &str = "models--facebook--sapiens-seg-0.3b-torchscript";

#[test]
fn places_are_tried_in_order() {
    let home = Home::new();
    let places = [
        format!("root/torchscript/seg/checkpoints/sapiens_0.3b/{FILE}"),
        format!("root/seg/checkpoints/sapiens_0.3b/{FILE}"),
        format!("cache/sapiensseg/{FILE}"),
        format!("hub/{REPOSITORY}/snapshots/abc/{FILE}"),
        format!("hf/hub/{REPOSITORY}/snapshots/abc/{FILE}"),
        format!("home/.cache/huggingface/hub/{REPOSITORY}/snapshots/abc/{FILE}"),
    ];
    // From the last to the first, each is preferred to those after it.
    for place in places.iter().rev() {
        let path = home.file(place);
        assert_eq!(locate(&card("0.3b"), None, true, &home.everything()).unwrap(), path);
    }
    let given = home.file("elsewhere.pth");
    assert_eq!(locate(&card("0.3b"), Some(&given), true, &home.everything()).unwrap(), given);
}

#[test]
fn second_family_is_found_in_the_authors_layout() {
    let home = Home::new();
    let path = home.file("root/seg/sapiens2_0.4b_seg.safetensors");
    assert_eq!(locate(&card("sapiens2-0.4b"), None, true, &home.everything()).unwrap(), path);
}

#[test]
fn the_cache_defaults_to_the_home_folder() {
    let home = Home::new();
    let path = home.file(&format!("home/.cache/sapiensseg/{FILE}"));
    assert_eq!(locate(&card("0.3b"), None, true, &home.environment(&["HOME"])).unwrap(), path);
    let relative = Environment::from_vars([
        ("HOME".to_owned(), home.path("home").into_os_string()),
        ("XDG_CACHE_HOME".to_owned(), OsString::from("not/absolute")),
        (CHECKPOINT_ROOT.to_owned(), OsString::new()),
    ]);
    assert_eq!(locate(&card("0.3b"), None, true, &relative).unwrap(), path);
}

#[test]
fn the_hubs_main_revision_is_preferred() {
    let home = Home::new();
    let main = home.file(&format!("hub/{REPOSITORY}/snapshots/0123/{FILE}"));
    let other = home.file(&format!("hub/{REPOSITORY}/snapshots/abcd/{FILE}"));
    let found = || locate(&card("0.3b"), None, true, &home.environment(&[HUB_CACHE])).unwrap();
    for (revision, expected) in [("0123\n", &main), ("abcd", &other)] {
        fs::create_dir_all(home.path(&format!("hub/{REPOSITORY}/refs"))).unwrap();
        fs::write(home.path(&format!("hub/{REPOSITORY}/refs/main")), revision).unwrap();
        assert_eq!(found(), *expected);
    }
    // A reference to a revision that isn't there, or to somewhere else, is passed over.
    for revision in ["ffff", "../../../elsewhere"] {
        fs::write(home.path(&format!("hub/{REPOSITORY}/refs/main")), revision).unwrap();
        assert!([&main, &other].contains(&&found()));
    }
}

#[test]
fn nothing_found_lists_every_place_and_how_to_get_them() {
    let home = Home::new();
    let error = locate(&card("0.3b"), None, false, &home.everything()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WeightsNotFound);
    let message = error.to_string();
    for expected in [
        &format!("root/torchscript/seg/checkpoints/sapiens_0.3b/{FILE}"),
        &format!("root/seg/checkpoints/sapiens_0.3b/{FILE}"),
        &format!("cache/sapiensseg/{FILE}"),
        &format!("hub/{REPOSITORY}/snapshots/*/{FILE}"),
        &format!("hf/hub/{REPOSITORY}/snapshots/*/{FILE}"),
        &format!("home/.cache/huggingface/hub/{REPOSITORY}/snapshots/*/{FILE}"),
        "with `sapiens fetch 0.3b` or from",
        &format!("https://huggingface.co/facebook/sapiens-seg-0.3b-torchscript/resolve/main/{FILE}"),
        "variant=demo",
        "CC-BY-NC-4.0",
        "SAPIENS_NONCOMMERCIAL=1",
    ] {
        assert!(message.contains(expected), "{message}\nlacks {expected}");
    }
    let message = locate(&card("0.3b"), None, true, &Environment::default()).unwrap_err().to_string();
    assert!(message.contains("$SAPIENS_CHECKPOINT_ROOT (not set)"), "{message}");
    assert!(message.contains("their licence: CC-BY-NC-4.0") && !message.contains("besides"), "{message}");
}

#[test]
fn weights_that_are_not_published_must_be_given() {
    let error = locate(&card("2b"), None, true, &Environment::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WeightsNotFound);
    let message = error.to_string();
    assert!(
        message.contains("no weights are known to be published for 2b: say where they are with weights="),
        "{message}"
    );

    let error =
        locate(&card("2b"), Some("/nowhere.pth".as_ref()), false, &Environment::default()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("weights /nowhere.pth: no such file or folder\nbesides, the weights of 2b"),
        "{message}"
    );
}

fn accepted(nick: &str, vars: &[(&str, &str)]) -> Result<()> {
    let vars = vars.iter().map(|(name, value)| (name.to_string(), OsString::from(value)));
    license::gate(&card(nick), false, &Environment::from_vars(vars))
}

#[test]
fn each_family_has_its_own_licence_to_accept() {
    accepted("0.3b", &[("SAPIENS_NONCOMMERCIAL", "1")]).unwrap();
    accepted("sapiens2-1b", &[("SAPIENS2_LICENSE_ACCEPTED", "1")]).unwrap();
    license::gate(&card("0.3b"), true, &Environment::default()).unwrap();
    for (nick, vars, expected) in [
        ("0.3b", &[][..], "CC-BY-NC-4.0, which allows no commercial use"),
        ("0.3b", &[("SAPIENS2_LICENSE_ACCEPTED", "1")], "SAPIENS_NONCOMMERCIAL=1"),
        ("0.3b", &[("SAPIENS_NONCOMMERCIAL", "0")], "SAPIENS_NONCOMMERCIAL=1"),
        ("sapiens2-1b", &[("SAPIENS_NONCOMMERCIAL", "1")], "SAPIENS2_LICENSE_ACCEPTED=1"),
        ("sapiens2-1b", &[], "Sapiens2 License, which has terms of its own"),
    ] {
        let error = accepted(nick, vars).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LicenseNotAccepted);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn other_licences_ask_for_nothing() {
    let mut card = card("0.3b");
    card.weights.as_mut().unwrap().license = crate::License::Other("MIT".into());
    license::gate(&card, false, &Environment::default()).unwrap();
    card.weights = None;
    license::gate(&card, false, &Environment::default()).unwrap();
}

#[test]
fn the_licence_is_asked_about_once_there_is_a_file_and_before_it_is_read() {
    let home = Home::new();
    home.file(&format!("cache/sapiensseg/{FILE}"));
    let open = |accepted| Weights::locate_and_open_in(&card("0.3b"), None, accepted, &home.everything());
    assert_eq!(open(false).unwrap_err().kind(), ErrorKind::LicenseNotAccepted);
    // Accepted, it is read, and turns out to be no checkpoint.
    assert_eq!(open(true).unwrap_err().kind(), ErrorKind::InvalidWeights);
    let nothing = Weights::locate_and_open_in(&card("1b"), None, false, &home.everything());
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WeightsNotFound);
}
