// The nonlinearities that follow products and norms.
#pragma once
#include "device.cuh"

// In its exact form.
DEVICE f32 gelu(f32 x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678f)); }
DEVICE f32 silu(f32 x) { return x * reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x)); }
