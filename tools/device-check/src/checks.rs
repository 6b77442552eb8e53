//! The kernels' tests, run on all cards of the machine. They are compiled into this program from where they are: a
//! `#[cfg_attr(test, test)]` there is a plain function here.

use std::panic::catch_unwind;
use std::time::Instant;

#[path = "../../../kernels/tests/cuda_attention.rs"]
mod attention;
#[path = "../../../kernels/tests/cuda_cut_out.rs"]
mod cut_out;
#[path = "../../../kernels/tests/cuda_finish.rs"]
mod finish;
#[path = "../../../kernels/tests/cuda_frame.rs"]
mod frame;
#[path = "../../../kernels/tests/cuda_generate.rs"]
mod generate;
#[path = "../../../kernels/tests/cuda_norm.rs"]
mod norm;
#[path = "../../../kernels/tests/cuda_overlay.rs"]
mod overlay;
#[path = "../../../kernels/tests/cuda_pack.rs"]
mod pack;
#[path = "../../../kernels/tests/cuda_products.rs"]
mod products;
#[path = "../../../kernels/tests/cuda_resize_argmax.rs"]
#[allow(dead_code, unused_imports, reason = "two of its tests need files of the repository")]
mod resize_argmax;
#[path = "../../../kernels/tests/cuda_words.rs"]
mod words;

/// A name and what it stands for.
macro_rules! checks {
    ($($module:ident::$function:ident),* $(,)?) => {
        [$((concat!(stringify!($module), ": ", stringify!($function)), $module::$function as fn())),*]
    };
}

/// Runs them all, says how each went, and returns how many failed.
pub fn run() -> usize {
    let checks = checks![
        words::conversions_round_to_even,
        words::functions_are_as_exact_as_they_say,
        words::lanes_exchange_values,
        words::matrices_are_spread_over_lanes,
        words::copies_arrive_or_are_zero,
        words::matrices_are_multiplied,
        products::products_agree_with_the_naive_ones,
        products::products_by_cublaslt_agree_with_the_naive_ones,
        products::results_may_have_gaps,
        products::deconvs_agree_with_the_naive_ones,
        finish::gelu_agrees_with_the_naive_one,
        finish::swiglu_agrees_with_the_naive_one,
        finish::sums_agree_with_the_naive_ones,
        finish::moments_agree_with_the_naive_ones,
        attention::attention_agrees_with_the_naive_one,
        attention::large_scores_choose_one_key,
        attention::norms_and_rotation_agree_with_the_naive_ones,
        norm::norms_of_rows_agree_with_the_naive_ones,
        norm::instance_norms_agree_with_the_naive_ones,
        frame::equals_the_naive_twins_on_ugly_sizes,
        frame::a_frame_may_be_smaller_than_its_canvas,
        frame::every_arithmetic_of_areas_is_met,
        resize_argmax::equals_the_naive_twin_on_ugly_sizes,
        resize_argmax::the_lowest_of_equal_classes_wins_and_nan_never_does,
        resize_argmax::infinite_logits_do_as_the_naive_twin_does,
        overlay::equals_the_naive_twin_on_ugly_sizes,
        overlay::nothing_shown_changes_nothing,
        cut_out::equals_the_naive_twin_on_ugly_sizes,
        cut_out::without_labels_nothing_is_shown,
        pack::equals_the_naive_twin_to_the_bit,
        pack::phases_are_those_of_a_deconv,
        generate::equals_the_naive_twin_to_the_bit,
    ];
    let mut wrong = 0;
    for (name, check) in checks {
        let start = Instant::now();
        // What went wrong is said by the panic.
        let right = catch_unwind(check).is_ok();
        wrong += usize::from(!right);
        let verdict = if right { "right" } else { "WRONG" };
        anstream::println!("{verdict}  {name} ({:.1} s)", start.elapsed().as_secs_f32());
    }
    wrong
}
