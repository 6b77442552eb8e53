//! The forward pass against the authors' numbers, at every level and in both precisions.

use sapiens_kernels::cpu::Level;
use sapiens_kernels::cpu::product::patch_rows;

use super::*;
use crate::Variant;
use crate::engine::reference_data::{
    Difference, FULL_SIZE_SEED, TINY, data, difference, generated_input, reference, slice, torch_bf16,
};

/// A network with generated weights at one level, and what it makes of an input.
struct Run<E> {
    network: Network<E>,
    threads: Threads,
}

impl<E: Element> Run<E> {
    fn new(card: &ModelCard, seed: u64, level: Level, threads: usize) -> Self {
        let mut threads = Threads::new(threads).unwrap();
        let network = Network::load(card, &Weights::generated(card, seed), level, &mut threads).unwrap();
        Self { network, threads }
    }

    fn workspace(&self, size: [usize; 2]) -> Workspace<E> {
        let mut workspace = Workspace::new(&self.network, size, self.threads.count()).unwrap();
        // Whatever a frame before left there.
        workspace.x.fill(f32::NAN);
        workspace.narrow.fill(E::NAN);
        workspace.wide.fill(E::NAN);
        workspace.maps.iter_mut().for_each(|map| map.fill(E::NAN));
        workspace.logits.fill(f32::NAN);
        workspace
    }

    /// Planar logits.
    fn logits(&mut self, workspace: &mut Workspace<E>, input: &[f32]) -> Logits {
        let size = workspace.size;
        patch_rows(&mut self.threads, input, size, workspace.patches());
        let stages = self.network.forward(&mut self.threads, workspace);
        assert!(!stages.total().is_zero());
        let (size, classes) = (self.network.sizes.logits(workspace.size), self.network.sizes.classes);
        Logits::of_pixels(&workspace.logits, classes, classes, size)
    }
}

/// Both tiny models at both sizes; `check` says whether a difference will do.
fn tiny<E: Element>(check: impl Fn(Difference) -> bool) {
    for (card, seed, files) in TINY {
        let card = ModelCard::load(&data(card)).unwrap();
        for level in sapiens_stand_in_amx::levels() {
            let mut run = Run::<E>::new(&card, seed, level, 2);
            for file in files {
                let reference = reference(file);
                let (shape, input) = &reference["input"];
                let mut workspace = run.workspace([shape[2], shape[3]]);
                let logits = run.logits(&mut workspace, input);
                let (shape, expected) = &reference["logits"];
                assert_eq!(*shape, [1, logits.classes, logits.height, logits.width]);
                let found = difference(&logits.values, expected);
                println!("{file} at {level}: {found:?}");
                assert!(check(found), "{file} at {level}: {found:?}");
                // Nothing of a frame is left over for the next.
                assert_eq!(run.logits(&mut workspace, input), logits, "{file} at {level}, once more");
            }
        }
    }
}

#[test]
fn tiny_networks_in_f32() {
    tiny::<f32>(|found| found.max <= 0.002 && found.mean <= 1e-4);
}

#[test]
fn tiny_networks_in_bf16() {
    // About three times what is found, and a third of what half precision may differ by at most.
    tiny::<bf16>(|found| found.mean <= 0.02 && found.p99 <= 0.08);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for (card, seed, [file, _]) in TINY {
        let card = ModelCard::load(&data(card)).unwrap();
        let reference = reference(file);
        let (shape, input) = &reference["input"];
        let mut logits = [1, 2, 5].map(|threads| {
            let mut run = Run::<bf16>::new(&card, seed, Level::best(), threads);
            let mut workspace = run.workspace([shape[2], shape[3]]);
            run.logits(&mut workspace, input)
        });
        let [one, others @ ..] = &mut logits;
        assert!(others.iter().all(|other| other == one), "{}", card.name());
    }
}

#[test]
fn a_head_dim_that_no_kernel_has_is_refused() {
    // An open device is looked for, and what is found stays so for the whole process: others need the stand-in.
    #[cfg(feature = "cuda")]
    sapiens_stand_in_loader::open();
    let mut card = ModelCard::load(&data("tiny-sapiens.toml")).unwrap();
    card.network.heads = 32;
    let weights = Weights::generated(&card, 1);
    let mode = Some(crate::Mode::Kernels);
    let backend = crate::BackendRequest { mode, ..Default::default() };
    #[cfg(feature = "portable")]
    let open = card.clone();
    let error = crate::Segmenter::new(card, &weights, Options { backend, ..Options::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("head dim of 2"), "{error}");
    #[cfg(feature = "portable")]
    assert_eq!(
        crate::Segmenter::new(open, &weights, Options::default()).unwrap().backend(),
        Backend::PORTABLE
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_input_larger_than_memory_is_an_error() {
    let card = ModelCard::load(&data("tiny-sapiens2.toml")).unwrap();
    let run = Run::<f32>::new(&card, 2, Level::best(), 1);
    let error = Workspace::new(&run.network, [1 << 20, 1 << 19], 1).unwrap_err().to_string();
    assert!(error.starts_with("a network input of 524288 x 1048576 takes "), "{error}");
    assert!(error.contains("GB are available"), "{error}");
}

#[test]
fn more_threads_than_any_machine_has_use_for_are_an_error() {
    let card = ModelCard::load(&data("tiny-sapiens2.toml")).unwrap();
    let weights = Weights::generated(&card, 2);
    let options = Options { threads: usize::MAX, ..Options::default() };
    let error = crate::Segmenter::new(card, &weights, options).unwrap_err().to_string();
    assert_eq!(error, format!("threads is {}: expected 0 (for all there are) to 1024", usize::MAX));
}

/// A published network with generated weights at 1024 x 768 against the reference's slices.
fn full_size<E: Element>(variant: Variant, file: &str, level: Level) -> Difference {
    let card = ModelCard::of(variant);
    let reference = reference(file);
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut run = Run::<E>::new(&card, FULL_SIZE_SEED, level, threads);
    let load = start.elapsed();
    let mut workspace = run.workspace([1024, 768]);
    let input = generated_input(1024, 768);
    let start = Instant::now();
    let logits = run.logits(&mut workspace, &input);
    let forward = start.elapsed();
    let found = difference(&slice(card.family, &logits), &reference["logits.slice"].1);
    let element = std::any::type_name::<E>().rsplit("::").next().unwrap();
    println!("{variant} in {element} at {level}: {found:?}, load {load:.1?}, forward {forward:.1?}");
    found
}

fn check_f32(variant: Variant, file: &str) {
    let found = full_size::<f32>(variant, file, Level::best());
    assert!(found.max <= 0.002 && found.mean <= 5e-4, "{variant}: {found:?}");
}

fn check_bf16(variant: Variant, file: &str, level: Level) {
    let found = full_size::<bf16>(variant, file, level);
    // Where PyTorch's own bf16 isn't known, 1.25 times this is what half precision may differ by at most.
    let [mean, p99] = torch_bf16(variant).unwrap_or([0.04, 0.2]);
    assert!(found.mean <= 1.25 * mean && found.p99 <= 1.25 * p99, "{variant}: {found:?}");
}

#[test]
#[ignore = "takes minutes: make full-size"]
fn full_size_networks_agree_with_the_authors() {
    for (variant, file) in [
        (Variant::Sapiens03b, "sapiens-0.3b.logits.safetensors"),
        (Variant::Sapiens2_04b, "sapiens2-0.4b.logits.safetensors"),
    ] {
        check_f32(variant, file);
        check_bf16(variant, file, Level::best());
    }
}

/// Where no processor here has AMX, its instructions are executed one by one.
#[test]
#[ignore = "takes many minutes: make full-size-all"]
fn full_size_networks_in_tiles() {
    let Some(&tiles) = sapiens_stand_in_amx::levels().first().filter(|level| level.name() == "amx") else {
        return eprintln!("skipped: without AVX512_BF16 there is no level with AMX");
    };
    check_bf16(Variant::Sapiens03b, "sapiens-0.3b.logits.safetensors", tiles);
    check_bf16(Variant::Sapiens2_04b, "sapiens2-0.4b.logits.safetensors", tiles);
}

#[test]
#[ignore = "takes half an hour and up to 14 GB: make full-size-all"]
fn full_size_networks_of_every_variant() {
    for (variant, file) in [
        (Variant::Sapiens06b, "sapiens-0.6b.logits.safetensors"),
        (Variant::Sapiens1b, "sapiens-1b.logits.safetensors"),
        (Variant::Sapiens2b, "sapiens-2b.logits.safetensors"),
        (Variant::Sapiens2_08b, "sapiens2-0.8b.logits.safetensors"),
        (Variant::Sapiens2_1b, "sapiens2-1b.logits.safetensors"),
    ] {
        check_f32(variant, file);
        check_bf16(variant, file, Level::best());
    }
    check_bf16(Variant::Sapiens2_5b, "sapiens2-5b.logits.safetensors", Level::best());
}
