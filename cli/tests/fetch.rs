//! `sapiens fetch` as a process, against a hub on this machine.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

mod fetch_server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fetch_server::{Gate, Hub, Reply, Server, Step, sha256};
use tempfile::TempDir;

/// A variant of which no hash is known beforehand, and one of which the first digits are.
const FREE: (&str, &str) = ("sapiens2-0.4b", "sapiens2_0.4b_seg.safetensors");
const PINNED: (&str, &str) =
    ("0.3b", "sapiens_0.3b_goliath_best_goliath_mIoU_7673_epoch_194_torchscript.pt2");

/// A home folder, with a cache in it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join("cache/sapiensseg")
    }

    fn file(&self) -> PathBuf {
        self.cache().join(FREE.1)
    }

    /// The command, with no variable of the machine's own in its way.
    fn command(&self, endpoint: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapiens"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().to_ascii_uppercase();
            let ours =
                ["HF_", "HUGGING_FACE_", "SAPIENS", "RUST_LOG"].iter().any(|start| text.starts_with(start));
            if ours || text.ends_with("_PROXY") {
                command.env_remove(name);
            }
        }
        command
            .env("HOME", self.0.path())
            .env("XDG_CACHE_HOME", self.0.path().join("cache"))
            .env("HF_ENDPOINT", endpoint)
            .stdin(Stdio::null())
            .arg("fetch")
            .args(arguments);
        command
    }

    fn fetch(&self, hub: &Hub, arguments: &[&str]) -> Output {
        let arguments = [&[FREE.0, "--accept-license"], arguments].concat();
        self.command(&hub.hub.address(), &arguments).output().unwrap()
    }

    fn start(&self, hub: &Hub) -> Child {
        let mut command = self.command(&hub.hub.address(), &[FREE.0, "--accept-license"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Names in the cache, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cache()).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn part(&self, sha256: &str) -> PathBuf {
        self.cache().join(format!("{}.{}.part", FREE.1, &sha256[..16]))
    }
}

/// Bytes that no two places have alike.
fn content(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The error's text, which must have all of `expected`.
#[track_caller]
fn fails(output: &Output, expected: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(output.stdout.is_empty());
    for expected in expected {
        assert!(text.contains(expected), "{text}\nlacks {expected}");
    }
}

#[track_caller]
fn fetched(home: &Home, output: &Output, content: &[u8]) {
    assert_eq!(stdout(output), format!("{}\n", home.file().display()), "{}", stderr(output));
    assert!(fs::read(home.file()).unwrap() == content, "other bytes");
    assert_eq!(home.names(), [FREE.1.to_owned(), format!("{}.sha256.json", FREE.1)]);
}

fn range(from: usize) -> Option<String> {
    Some(format!("bytes={from}-"))
}

#[test]
fn a_file_is_fetched_checked_recorded_and_found() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::new(&content, []);
    let output = home.fetch(&hub, &[]);
    fetched(&home, &output, &content);
    let text = stderr(&output);
    for expected in
        ["facebook/sapiens2-seg-0.4b comes under the Sapiens2 License", "100 % of", "the published one"]
    {
        assert!(text.contains(expected), "{text}\nlacks {expected}");
    }
    assert!(!text.contains('\x1b') && !text.contains("secret"), "{text}");
    assert_eq!(hub.hub.requests()[0].target, format!("/facebook/sapiens2-seg-0.4b/resolve/main/{}", FREE.1));
    let record = fs::read_to_string(home.cache().join(format!("{}.sha256.json", FREE.1))).unwrap();
    assert!(record.contains(&sha256(&content)), "{record}");

    let again = home.fetch(&hub, &[]);
    fetched(&home, &again, &content);
    assert!(stderr(&again).contains("already there"), "{}", stderr(&again));
    assert_eq!(hub.storage.gets().len(), 1);

    fetched(&home, &home.fetch(&hub, &["--force"]), &content);
    assert_eq!(hub.storage.ranges(), [None, None]);
    // What is there and is not what it should be may be somebody's own: it is replaced only when that is asked for.
    fs::write(home.file(), "mine").unwrap();
    fails(&home.fetch(&hub, &[]), &["another SHA-256", "--force"]);
    assert_eq!(fs::read(home.file()).unwrap(), b"mine");
    fetched(&home, &home.fetch(&hub, &["--force"]), &content);
}

#[test]
fn a_folder_and_a_revision_of_ones_own() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::new(&content, []);
    let folder = home.0.path().join("some/where");
    let output = home.fetch(&hub, &["--revision", "refs/pr/1", "--output", folder.to_str().unwrap()]);
    let path = folder.join(FREE.1);
    assert_eq!(stdout(&output), format!("{}\n", path.display()));
    assert!(fs::read(path).unwrap() == content);
    assert!(hub.hub.requests()[0].target.contains("/resolve/refs%2Fpr%2F1/"));
    assert!(home.names().is_empty());
}

#[test]
fn nothing_is_sent_before_the_licence_is_accepted() {
    let home = Home::new();
    let hub = Hub::new(b"weights", []);
    let output = home.command(&hub.hub.address(), &[FREE.0]).output().unwrap();
    fails(&output, &["Sapiens2 License, which has terms of its own", "--accept-license"]);
    assert!(hub.hub.requests().is_empty());
    let mut command = home.command(&hub.hub.address(), &[FREE.0]);
    fetched(&home, &command.env("SAPIENS2_LICENSE_ACCEPTED", "1").output().unwrap(), b"weights");
}

#[test]
fn what_has_no_file_is_told_apart() {
    let home = Home::new();
    let hub = Hub::new(b"weights", []);
    let run = |arguments: &[&str]| home.command(&hub.hub.address(), arguments).output().unwrap();
    let demo = run(&["demo"]);
    assert_eq!(stdout(&demo), "");
    assert!(stderr(&demo).contains("nothing to fetch"), "{}", stderr(&demo));
    fails(
        &run(&["2b", "demo", "--accept-license"]),
        &["2b: no weights are known to be published", "demo: its"],
    );
    assert_eq!(run(&["7b"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["0.3b", "--endpoint", "ftp://x"]).status.code(), Some(2));
    assert!(hub.hub.requests().is_empty());
    // One that fails doesn't keep the others from being fetched.
    let output = run(&["2b", FREE.0, "--accept-license"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", home.file().display()));
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let (home, content) = (Home::new(), content(1000));
    let token = |variables: &[(&str, &str)]| {
        let hub = Hub::new(&content, []);
        let mut command = home.command(&hub.hub.address(), &[FREE.0, "--accept-license", "--force"]);
        command.envs(variables.iter().copied());
        fetched(&home, &command.output().unwrap(), &content);
        let seen: Vec<_> = hub
            .hub
            .requests()
            .iter()
            .map(|request| request.header("authorization").map(str::to_owned))
            .collect();
        assert!(seen.len() == 2 && seen[0] == seen[1], "{seen:?}");
        assert!(hub.storage.requests().iter().all(|request| request.header("authorization").is_none()));
        seen[0].clone()
    };
    let file = home.0.path().join("token");
    fs::write(&file, "of-path\n").unwrap();
    let hub_home = home.0.path().join("hf");
    fs::create_dir_all(&hub_home).unwrap();
    fs::write(hub_home.join("token"), "of-home\n").unwrap();
    let (of_path, of_home) = (file.to_str().unwrap(), hub_home.to_str().unwrap());
    assert_eq!(token(&[]), None);
    let is = |name: &str, found: Option<String>| assert_eq!(found, Some(format!("Bearer {name}")));
    is("of-variable", token(&[("HF_TOKEN", "of-variable"), ("HUGGING_FACE_HUB_TOKEN", "other")]));
    is("of-old-variable", token(&[("HUGGING_FACE_HUB_TOKEN", "of-old-variable"), ("HF_HOME", of_home)]));
    is("of-path", token(&[("HF_TOKEN_PATH", of_path), ("HF_HOME", of_home)]));
    is("of-home", token(&[("HF_HOME", of_home)]));
    let default = home.0.path().join(".cache/huggingface");
    fs::create_dir_all(&default).unwrap();
    fs::write(default.join("token"), "of-cache").unwrap();
    is("of-cache", token(&[]));
}

#[test]
fn a_cut_connection_is_continued() {
    let (home, content) = (Home::new(), content(400_000));
    let hub = Hub::new(&content, [Step::Cut(100_000), Step::Cut(50_000), Step::Status(503)]);
    let output = home.fetch(&hub, &[]);
    fetched(&home, &output, &content);
    assert_eq!(hub.storage.ranges(), [None, range(100_000), range(150_000), range(150_000)]);
    assert!(stderr(&output).contains("trying again"), "{}", stderr(&output));
}

#[test]
fn a_network_that_stays_away_is_given_up_and_the_next_run_continues() {
    let (home, content) = (Home::new(), content(400_000));
    let steps = std::iter::once(Step::Cut(123_456)).chain((0..6).map(|_| Step::Cut(0)));
    let hub = Hub::new(&content, steps);
    fails(
        &home.fetch(&hub, &[]),
        &["the connection was lost", "tried 6 times", "run the same command again to continue"],
    );
    assert_eq!(home.names(), [home.part(&sha256(&content)).file_name().unwrap().to_str().unwrap()]);
    let output = home.fetch(&hub, &[]);
    fetched(&home, &output, &content);
    assert_eq!(*hub.storage.ranges().last().unwrap(), range(123_456));
    assert!(stderr(&output).contains("continuing at"), "{}", stderr(&output));
}

#[test]
fn a_server_without_ranges_starts_over() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::new(&content, [Step::Cut(100_000), Step::IgnoreRange]);
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(hub.storage.ranges(), [None, range(100_000)]);
}

#[test]
fn a_range_that_was_not_asked_for_is_not_taken() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::new(&content, [Step::Cut(100_000), Step::WrongRange, Step::Status(416)]);
    let output = home.fetch(&hub, &[]);
    fetched(&home, &output, &content);
    assert!(stderr(&output).contains("the hub sent others"), "{}", stderr(&output));
    assert_eq!(hub.storage.ranges(), [None, range(100_000), range(100_000), None]);
}

#[test]
fn a_part_is_continued_if_it_is_of_this_version() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::new(&content, []);
    fs::create_dir_all(home.cache()).unwrap();
    // Another version's is left alone, and cleared away once there is a file.
    fs::write(home.part(&sha256(b"other")), &content[..200_000]).unwrap();
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(hub.storage.ranges(), [None]);
    // One that is whole but for its name needs no request.
    fs::remove_file(home.file()).unwrap();
    fs::write(home.part(&sha256(&content)), &content).unwrap();
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(hub.storage.ranges(), [None]);
    // One that is longer than the file is none of it.
    fs::remove_file(home.file()).unwrap();
    fs::write(home.part(&sha256(&content)), [&content[..], b"more"].concat()).unwrap();
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(hub.storage.ranges(), [None, None]);
}

#[test]
fn a_copy_that_the_other_commands_find_is_enough() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::new(&content, []);
    let copy = home.0.path().join("root/seg").join(FREE.1);
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    let run = || {
        let mut command = home.command(&hub.hub.address(), &[FREE.0, "--accept-license"]);
        command.env("SAPIENS_CHECKPOINT_ROOT", home.0.path().join("root")).output().unwrap()
    };
    fs::write(&copy, &content).unwrap();
    assert_eq!(stdout(&run()), format!("{}\n", copy.display()));
    assert!(hub.storage.requests().is_empty());
    // Another version there stays in the way of the one that is fetched, which is worth a word.
    fs::write(&copy, "other").unwrap();
    let output = run();
    fetched(&home, &output, &content);
    assert!(stderr(&output).contains("is found first"), "{}", stderr(&output));
}

#[test]
fn a_file_with_another_hash_is_deleted() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::claiming(&content, Some(&sha256(b"other")), content.len() as u64, []);
    fails(&home.fetch(&hub, &[]), &[&sha256(b"other"), &sha256(&content), "deleted"]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn the_cards_hash_is_held_against_the_hubs_and_the_files() {
    let (home, content) = (Home::new(), content(1000));
    let run = |hub: &Hub| home.command(&hub.hub.address(), &[PINNED.0, "--accept-license"]).output().unwrap();
    // Contradicted by the hub, nothing is downloaded.
    let hub = Hub::new(&content, []);
    fails(&run(&hub), &["begins with 735a9a8d63fe", &sha256(&content)]);
    assert!(hub.storage.requests().is_empty());
    // A hub that knows none: the card's digits decide.
    let hub = Hub::claiming(&content, None, 0, []);
    fails(&run(&hub), &["expected SHA-256 735a9a8d63fe..., found", &sha256(&content), "deleted"]);
    assert_eq!(hub.storage.gets().len(), 1);
    assert!(!home.cache().join(PINNED.1).exists());
    // None at all: what can't be checked isn't fetched.
    let hub = Hub::claiming(&content, None, 0, []);
    fails(&home.fetch(&hub, &[]), &["could not be checked"]);
    assert!(hub.storage.gets().is_empty());
}

#[test]
fn a_size_that_is_contradicted_is_an_error() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::claiming(&content, Some(&sha256(&content)), 2000, []);
    fails(&home.fetch(&hub, &[]), &["2000 bytes", "1000"]);
}

#[test]
fn gated_and_missing_files_say_what_to_do() {
    let home = Home::new();
    let run = |status: u16, token: Option<&str>| {
        let server = Server::start(move |_| Reply::status(status));
        let mut command = home.command(&server.address(), &[FREE.0, "--accept-license"]);
        if let Some(token) = token {
            command.env("HF_TOKEN", token);
        }
        let output = command.output().unwrap();
        assert_eq!(server.requests().len(), 1, "tried again");
        (output, server.address())
    };
    let (output, address) = run(401, None);
    fails(
        &output,
        &["gated", &format!("{address}/facebook/sapiens2-seg-0.4b"), "set HF_TOKEN", "none is set"],
    );
    let (output, _) = run(403, Some("hf_mine"));
    fails(&output, &["(403)", "the one in HF_TOKEN was not enough"]);
    assert!(!stderr(&output).contains("hf_mine"));
    let (output, _) = run(404, None);
    fails(&output, &["(404)", "facebook/sapiens2-seg-0.4b", FREE.1, "revision main"]);
    assert!(home.names().is_empty());
}

#[test]
fn a_busy_hub_is_asked_again_when_it_says() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::new(&content, []);
    let (asked, stored) = (AtomicUsize::new(0), format!("{}/stored", hub.storage.address()));
    let (etag, size) = (format!("\"{}\"", sha256(&content)), content.len());
    let front = Server::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(500),
        1 => Reply::status(429).header("Retry-After", 2),
        _ => Reply::status(302)
            .header("Location", &stored)
            .header("X-Linked-Etag", &etag)
            .header("X-Linked-Size", size),
    });
    let start = Instant::now();
    let output = home.command(&front.address(), &[FREE.0, "--accept-license"]).output().unwrap();
    fetched(&home, &output, &content);
    let text = stderr(&output);
    assert!(text.contains("(500)") && text.contains("(429): trying again in 2.0 s"), "{text}");
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_renamed_repository_is_followed() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::new(&content, []);
    let (etag, size) = (format!("\"{}\"", sha256(&content)), content.len());
    let stored = format!("{}/stored", hub.storage.address());
    let front = Server::start(move |request| match request.target.as_str() {
        "/new/name" => Reply::status(302)
            .header("Location", &stored)
            .header("X-Linked-Etag", &etag)
            .header("X-Linked-Size", size),
        _ => Reply::status(307).header("Location", "/new/name"),
    });
    let output = home.command(&front.address(), &[FREE.0, "--accept-license"]).output().unwrap();
    fetched(&home, &output, &content);
}

#[test]
fn space_is_looked_for_before_anything_is_downloaded() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::claiming(&content, Some(&sha256(&content)), 1 << 60, []);
    fails(&home.fetch(&hub, &[]), &["no space", "1152921504606846976 bytes", " free ("]);
    assert!(hub.storage.requests().is_empty());
}

/// A file system of 1 MiB; none where this isn't allowed.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut command = Command::new("mount");
        let output = command.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(path).output().ok()?;
        output.status.success().then(|| Self(path.to_owned()))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn space_that_runs_out_keeps_the_part() {
    let (home, content) = (Home::new(), content(600_000));
    let Some(_tiny) = Tiny::mount(&home.cache()) else {
        println!("skipped: this user may not mount a file system that is small enough");
        return;
    };
    let gate = Arc::new(Gate::default());
    let hub = Hub::new(&content, [Step::Hold(200_000, gate.clone())]);
    let child = home.start(&hub);
    gate.wait_for_server();
    // Somebody else takes the room.
    let ballast = home.cache().join("ballast");
    let _ = fs::write(&ballast, vec![0; 1 << 20]);
    gate.open();
    let output = child.wait_with_output().unwrap();
    fails(&output, &["no space left", "run the same command again"]);
    let kept = fs::metadata(home.part(&sha256(&content))).unwrap().len() as usize;
    fs::remove_file(&ballast).unwrap();
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(*hub.storage.ranges().last().unwrap(), if kept > 0 { range(kept) } else { None });
}

#[test]
fn two_at_once_download_once() {
    let (home, content) = (Home::new(), content(300_000));
    let gate = Arc::new(Gate::default());
    let hub = Hub::new(&content, [Step::Hold(100_000, gate.clone())]);
    let first = home.start(&hub);
    gate.wait_for_server();
    let second = home.start(&hub);
    // The second has asked the hub, and then has nothing to do but wait.
    let start = Instant::now();
    while hub.hub.requests().iter().filter(|request| request.method == "HEAD").count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    gate.open();
    let (first, second) = (first.wait_with_output().unwrap(), second.wait_with_output().unwrap());
    fetched(&home, &first, &content);
    fetched(&home, &second, &content);
    let text = stderr(&second);
    assert!(
        text.contains("another process is fetching it: waiting") && text.contains("already there"),
        "{text}"
    );
    assert_eq!(hub.storage.gets().len(), 1);
}

#[test]
fn a_killed_download_is_continued() {
    let (home, content) = (Home::new(), content(500_000));
    let hub = Hub::new(&content, [Step::Hold(300_000, Arc::new(Gate::default()))]);
    let mut child = home.start(&hub);
    let part = home.part(&sha256(&content));
    let start = Instant::now();
    while fs::metadata(&part).map_or(0, |part| part.len()) < 200_000 {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!home.file().exists());
    let kept = fs::metadata(&part).unwrap().len() as usize;
    fetched(&home, &home.fetch(&hub, &[]), &content);
    assert_eq!(hub.storage.ranges(), [None, range(kept)]);
}

#[test]
fn a_connection_without_bytes_counts_as_lost() {
    let (home, content) = (Home::new(), content(300_000));
    let hub = Hub::new(&content, [Step::Hold(100_000, Arc::new(Gate::default()))]);
    let mut command = home.command(&hub.hub.address(), &[FREE.0, "--accept-license"]);
    let output = command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").output().unwrap();
    fetched(&home, &output, &content);
    assert_eq!(hub.storage.ranges(), [None, range(100_000)]);
}

#[test]
fn requests_go_through_the_proxy_unless_the_host_is_excepted() {
    let (home, content) = (Home::new(), content(1000));
    let hub = Hub::new(&content, []);
    let proxy = &hub.hub;
    // Nobody has this name: only a proxy can reach it.
    let name = "http://hub.invalid";
    let run = |variable: &str, address: &str, except: &str| {
        let mut command = home.command(name, &[FREE.0, "--accept-license"]);
        command.env(variable, address).env("NO_PROXY", except).output().unwrap()
    };
    let etag = sha256(&content);
    // The storage has an address of its own, which needs no proxy.
    fetched(&home, &run("HTTP_PROXY", &proxy.address(), "127.0.0.1"), &content);
    let tunnels = || proxy.requests().iter().filter(|request| request.method == "CONNECT").count();
    assert!(tunnels() >= 1, "{:?}", proxy.requests());
    let before = tunnels();
    fs::remove_file(home.file()).unwrap();
    fs::create_dir_all(home.cache()).unwrap();
    fs::write(home.part(&etag), &content).unwrap();
    fetched(&home, &run("all_proxy", &proxy.address(), ""), &content);
    assert!(tunnels() > before);
    fails(&run("HTTP_PROXY", "no proxy", ""), &["HTTP_PROXY is no proxy's address"]);

    let home = Home::new();
    let mut command = home.command(&hub.hub.address(), &[FREE.0, "--accept-license"]);
    let output =
        command.env("HTTP_PROXY", "http://127.0.0.1:1").env("NO_PROXY", "127.0.0.1").output().unwrap();
    fetched(&home, &output, &content);
}

#[test]
fn variables_that_forbid_or_make_no_sense() {
    let home = Home::new();
    let hub = Hub::new(b"weights", []);
    let run = |name: &str, value: &str| {
        let mut command = home.command(&hub.hub.address(), &[FREE.0, "--accept-license"]);
        command.env(name, value).output().unwrap()
    };
    fails(&run("HF_HUB_OFFLINE", "1"), &["HF_HUB_OFFLINE is set"]);
    fails(&run("HF_ENDPOINT", "huggingface.co"), &["HF_ENDPOINT", "no address of a hub"]);
    fails(&run("HF_HUB_DOWNLOAD_TIMEOUT", "soon"), &["HF_HUB_DOWNLOAD_TIMEOUT is \"soon\""]);
    let output = run("HF_TOKEN", "of two words");
    fails(&output, &["the token in HF_TOKEN"]);
    assert!(!stderr(&output).contains("two words"));
    assert!(hub.hub.requests().is_empty());
    // The argument goes before the variable.
    let address = hub.hub.address();
    let arguments = [FREE.0, "--accept-license", "--endpoint", &format!("{address}/")];
    fetched(&home, &home.command("http://127.0.0.1:1", &arguments).output().unwrap(), b"weights");
}
