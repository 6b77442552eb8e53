//! How good the network is on figures that it wasn't trained on, the way the product runs it: frames of their own
//! size, resized to the input, and the logits resized back.

use rayon::prelude::*;
use sapiens_figures::score::Score;
use sapiens_figures::{Kinds, Scene, SceneOptions};
use sapiens_kernels::image::{ImageMut, ImageRef};
use sapiens_kernels::resize::{self, Filter};
use sapiens_kernels::resize_argmax::{LabelWindow, Logits, ResizeArgmax};
use sapiens_portable::{CpuNetwork, Dims};

use crate::parameters::Layout;
use crate::sample::{Normalisation, Sample};

/// Width and height of the frames.
const SIZES: [[usize; 2]; 5] = [[640, 480], [480, 640], [768, 432], [432, 768], [512, 512]];

/// Training's scenes have seeds below this.
const FIRST_SEED: u64 = 1 << 63;

/// Frames, ready for the network.
#[derive(Debug)]
pub struct Frames {
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    input: Sample,
    width: usize,
    height: usize,
    /// `[height, width]`, at the frame's own size.
    truth: Vec<u8>,
}

impl Frames {
    /// The first `count` figures of `kinds`, for inputs of `height` x `width`.
    pub fn new(kinds: Kinds, count: usize, height: usize, width: usize) -> Self {
        let frames = (0..count)
            .into_par_iter()
            .map(|i| {
                let [w, h] = SIZES[i % SIZES.len()];
                let aspect = w as f64 / h as f64;
                let options = SceneOptions { kinds, aspect, ..SceneOptions::default() };
                let picture = Scene::sample(FIRST_SEED + i as u64, &options).render(w, h);
                let mut rgb = vec![0; 3 * height * width];
                let filter = if width < w { Filter::Area } else { Filter::Cubic };
                resize::Resizer::new().resize(
                    filter,
                    ImageRef::new(&picture.rgb, w, h, 3 * w),
                    ImageMut::new(&mut rgb, width, height, 3 * width),
                );
                let input = Sample::new(height, width, rgb, vec![0; height * width]);
                Frame { input, width: w, height: h, truth: picture.labels }
            })
            .collect();
        Self { frames }
    }

    /// Score of the network with the parameters `values`.
    pub fn score(
        &self,
        dims: &Dims,
        layout: &Layout,
        values: &[f32],
        normalisation: &Normalisation,
    ) -> Score {
        let network = CpuNetwork::new(dims, &Default::default(), layout.model(dims, values));
        let labels: Vec<_> =
            self.frames.par_iter().map(|frame| frame.labels(&network, normalisation)).collect();
        let mut score = Score::default();
        self.frames.iter().zip(labels).for_each(|(frame, labels)| score.add(&frame.truth, &labels));
        score
    }
}

impl Frame {
    fn labels(&self, network: &CpuNetwork, normalisation: &Normalisation) -> Vec<u8> {
        let Self { input, width, height, .. } = self;
        let mut values = Vec::new();
        input.normalise(normalisation, &mut values);
        let [rows, columns] = input.size();
        let logits = network.forward(values, rows, columns);
        let mut labels = vec![0; width * height];
        ResizeArgmax::new().run(
            Logits::new(&logits.values, logits.classes, logits.height, logits.width),
            LabelWindow::whole(*height, *width),
            0..*height,
            &mut labels,
        );
        labels
    }
}
