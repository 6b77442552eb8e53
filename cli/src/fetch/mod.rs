//! `sapiens fetch`: published weights from the hub to where the other commands find them.

mod failure;
mod hub;
mod place;
mod progress;
mod proxy;
mod settings;
mod transfer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanBytes;
use sapiens_cli::{complain, model_args};
use sapiens_model::weights::{cache_path, file_sha256, license_gate, record_sha256};
use sapiens_model::{ModelCard, Variant, Weights};

use failure::{Failure, Patience, Result};
use hub::{Address, Hub, Published};
use place::Place;
use progress::Progress;
use settings::Endpoint;
use transfer::Part;

#[derive(Args)]
#[command(after_long_help = "\
Weights are large: 1 to 20 GB each. A download that was interrupted, by you or by the network, continues when the \
same command is run again. Every byte is checked against the published SHA-256 before the file gets its name.

Environment:
  HF_TOKEN         your token, for models whose terms must be accepted on the hub first;
                   else HUGGING_FACE_HUB_TOKEN, or the file $HF_TOKEN_PATH, $HF_HOME/token
                   or ~/.cache/huggingface/token. Sent to the hub, never to its storage.
  HF_ENDPOINT      another hub's address, as --endpoint
  HF_HUB_OFFLINE   1 to send nothing
  HF_HUB_DOWNLOAD_TIMEOUT
                   seconds without a byte after which a connection is lost (30)
  HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY
                   the proxy, and the hosts that need none
  XDG_CACHE_HOME   files go to its folder sapiensseg; without it to ~/.cache/sapiensseg

Examples:
  sapiens fetch 0.3b --accept-license
  sapiens fetch 0.3b sapiens2-1b --output weights
  weights=$(sapiens fetch 1b) && ls -l \"$weights\"

Exit codes: 0 all are there, 1 something failed and was reported, 2 a mistake in the arguments.")]
pub(crate) struct Arguments {
    /// The published models to fetch; `sapiens models` tells more about each.
    #[arg(required = true, value_name = "VARIANT", value_parser = model_args::variant())]
    variants: Vec<Variant>,

    /// Put the files in this folder, not in the cache where the other commands look.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Accept the weights' licence, as SAPIENS_NONCOMMERCIAL=1 (first family) or SAPIENS2_LICENSE_ACCEPTED=1 do.
    #[arg(long)]
    accept_license: bool,

    /// The hub's address; without this $HF_ENDPOINT, else `https://huggingface.co`.
    #[arg(long, value_name = "URL")]
    endpoint: Option<Endpoint>,

    /// The branch, tag or commit of the repository.
    #[arg(long, value_name = "NAME", default_value = "main")]
    revision: String,

    /// Fetch anew what is already there, whole or in part.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments) -> sapiens_model::Result<ExitCode> {
    // Before gigabytes of the first are fetched.
    for card in arguments.variants.iter().map(|&variant| ModelCard::of(variant)) {
        license_gate(&card, arguments.accept_license)?;
    }
    let mut code = ExitCode::SUCCESS;
    for &variant in &arguments.variants {
        match fetch(arguments, variant) {
            // Alone on standard output, for scripts.
            Ok(Some(path)) => anstream::println!("{}", path.display()),
            Ok(None) => {}
            Err(failure) => {
                complain(&format!("{}: {failure}", variant.nick()));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Where the variant's weights are now; nothing if they need no file.
fn fetch(arguments: &Arguments, variant: Variant) -> Result<Option<PathBuf>> {
    let nick = variant.nick();
    let say = |line: &str| anstream::eprintln!("{nick}: {line}");
    if variant.has_built_in_weights() {
        say("its weights come with the program: there is nothing to fetch");
        return Ok(None);
    }
    let card = ModelCard::of(variant);
    let published = card.weights.as_ref();
    let Some((weights, repository, file)) = published
        .and_then(|weights| Some((weights, weights.repository.as_deref()?, weights.file.as_deref()?)))
    else {
        return Err(Failure::Final("no weights are known to be published for it: nothing to fetch".into()));
    };
    say(&format!("{repository} comes under the {}", weights.license));

    let target = match &arguments.output {
        Some(folder) => folder.join(file),
        None => cache_path(&card).ok_or_else(|| {
            Failure::Final("no cache folder: set HOME or XDG_CACHE_HOME, or say --output DIR".into())
        })?,
    };
    // A file that the other commands already find need not be fetched a second time.
    let found = if arguments.output.is_some() { None } else { Weights::find(&card) };
    let already = |expected: &str| -> Option<PathBuf> {
        let places = [Some(&target), found.as_ref()];
        let mut places = places.into_iter().flatten().filter(|path| !arguments.force && path.is_file());
        places.find(|path| has_hash(path, expected)).cloned()
    };
    // Known by the card alone, this costs no request.
    if let Some(path) = weights.sha256.as_deref().and_then(&already) {
        say("already there, with the published SHA-256");
        return Ok(Some(path));
    }

    if settings::offline() {
        return Err(Failure::Final("HF_HUB_OFFLINE is set: nothing is fetched while it is".into()));
    }
    let hub = Hub::new(Endpoint::chosen(arguments.endpoint.as_ref())?)?;
    let address = Address { repository, revision: &arguments.revision, file };
    let published = look(&hub, &address, say)?;
    let expected = expected_hash(weights.sha256.as_deref(), published.sha256.as_deref())?;

    let place = Place::take(target.clone(), say)?;
    if let Some(path) = already(&expected) {
        say("already there, with the published SHA-256");
        return Ok(Some(path));
    }
    if place.target().exists() && !arguments.force {
        return Err(Failure::Final(format!(
            "{} is there with another SHA-256 than the published {expected}: a damaged download, another version, or a model of your own; move it away, or replace it with --force",
            place.target().display()
        )));
    }
    if arguments.force {
        place.clear_parts();
    }
    transfer(nick, &hub, &address, &place, &published, &expected)?;
    say(&format!("{} fetched and checked: its SHA-256 is the published one", HumanBytes(published.size)));
    let first = if arguments.output.is_some() { None } else { Weights::find(&card) };
    if let Some(first) = first.filter(|first| *first != target) {
        say(&format!(
            "{} is another file, and is found first: remove it, or name the new one",
            first.display()
        ));
    }
    Ok(Some(target))
}

/// Whether the file has the hash, or as many digits of it as are known.
fn has_hash(path: &Path, expected: &str) -> bool {
    file_sha256(path).map_or_else(
        |error| {
            log::info!("{error}");
            false
        },
        |found| found.starts_with(expected),
    )
}

fn look(hub: &Hub, address: &Address<'_>, say: impl Fn(&str)) -> Result<Published> {
    let mut patience = Patience::default();
    loop {
        match hub.look(address) {
            Ok(published) => return Ok(published),
            Err(failure) => patience.wait(failure, &say)?,
        }
    }
}

/// What the file's hash must be: the longer of what the card and the hub know, if they agree.
fn expected_hash(card: Option<&str>, hub: Option<&str>) -> Result<String> {
    match (card, hub) {
        (Some(card), Some(hub)) if !hub.starts_with(card) => Err(Failure::Final(format!(
            "the SHA-256 of the published file begins with {card}, and the hub has a file with {hub}: not fetched; is it another revision?"
        ))),
        (_, Some(hub)) => Ok(hub.to_owned()),
        (Some(card), None) => Ok(card.to_owned()),
        (None, None) => Err(Failure::Final(
            "neither the hub nor this program knows the file's SHA-256, so it could not be checked: not fetched".into(),
        )),
    }
}

/// From nothing or a part to the file under its name.
fn transfer(
    nick: &str,
    hub: &Hub,
    address: &Address<'_>,
    place: &Place,
    published: &Published,
    expected: &str,
) -> Result<()> {
    let path = place.part(expected);
    let mut part = Part::open(&path)?;
    part.take_stock(published.size, |line| anstream::eprintln!("{nick}: {line}"))?;
    place.check_space(published.size - part.length())?;
    let mut progress = Progress::new(nick, published.size, part.length());
    let downloaded = transfer::download(hub, address, &mut part, published.size, &mut progress);
    progress.finish();
    downloaded?;
    let found = part.finish()?;
    if !found.starts_with(expected) {
        std::fs::remove_file(&path).map_err(|error| Failure::io("remove", &path, error))?;
        return Err(Failure::Final(format!(
            "{}: expected SHA-256 {expected}{}, found {found}: what was fetched is deleted; try again",
            address.file,
            if expected.len() < 64 { "..." } else { "" }
        )));
    }
    place.put(&path)?;
    record_sha256(place.target(), &found)?;
    Ok(())
}
