//! How cuBLASLt multiplies matrices of given sizes: found once, used for every frame.

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preferred, cublasLtReductionScheme_t, cudaDataType_t,
};

use super::library::{Algorithm, Found, Functions, Opaque, call};
use crate::cuda::{CudaError, Precision};

/// `CUBLAS_STATUS_ARCH_MISMATCH` and `CUBLAS_STATUS_NOT_SUPPORTED`: there is nothing for the card, or for a problem.
const NO_ALGORITHM: [u32; 2] = [8, 15];

/// `cublasOperation_t`: a matrix as it is, or transposed.
const OP_N: u32 = 0;
const OP_T: u32 = 1;

/// All that an algorithm depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    /// Values from the start of a row to that of the next: of what is multiplied, and of the results.
    pub strides: [u64; 2],
    /// Whether results are float32.
    pub wide: bool,
    /// Whether they are added to what is there.
    pub add: bool,
    /// What the address of a bias, of the results' type, is a multiple of, where there is one.
    pub bias: Option<u32>,
    /// What the addresses of weights, of what they are multiplied with and of results are multiples of.
    pub alignments: [u32; 3],
}

/// What a problem is multiplied with.
#[derive(Debug)]
pub struct Plan {
    functions: &'static Functions,
    pub operation: Operation,
    /// Of weights, of what they are multiplied with, and of results.
    pub layouts: [Layout; 3],
    pub algorithm: Algorithm,
}

// SAFETY: the library's descriptions may be used from any thread, by one at a time.
unsafe impl Send for Plan {}

/// What the library made, destroyed with it.
macro_rules! owned {
    ($(#[$about:meta])* $name:ident, $destroy:ident) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name(&'static Functions, pub Opaque);

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the library made it, and nobody uses it any more. Nothing can be done about a failure.
                let _ = unsafe { call!(self.0, $destroy(self.1)) };
            }
        }
    };
}

owned!(
    /// A kind of product.
    Operation,
    cublasLtMatmulDescDestroy
);
owned!(
    /// How a matrix lies in memory.
    Layout,
    cublasLtMatrixLayoutDestroy
);
owned!(
    /// What is asked of an algorithm.
    Preference,
    cublasLtMatmulPreferenceDestroy
);

impl Operation {
    fn new(functions: &'static Functions) -> Result<Self, CudaError> {
        let mut made = std::ptr::null_mut();
        let (compute, scale) = (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F);
        // SAFETY: `made` may be written to.
        unsafe { call!(functions, cublasLtMatmulDescCreate(&mut made, compute as u32, scale as u32))? };
        Ok(Self(functions, made))
    }

    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), CudaError> {
        let (value, bytes) = ((&raw const value).cast(), size_of::<T>());
        // SAFETY: the attribute is of so many bytes.
        unsafe { call!(self.0, cublasLtMatmulDescSetAttribute(self.1, attribute as u32, value, bytes)) }
    }
}

impl Layout {
    /// Columns of `rows` values, `stride` apart.
    fn new(
        functions: &'static Functions,
        kind: cudaDataType_t,
        [rows, columns, stride]: [u64; 3],
    ) -> Result<Self, CudaError> {
        let mut made = std::ptr::null_mut();
        // SAFETY: `made` may be written to.
        unsafe {
            call!(
                functions,
                cublasLtMatrixLayoutCreate(&mut made, kind as u32, rows, columns, stride as i64)
            )?
        };
        Ok(Self(functions, made))
    }
}

impl Preference {
    fn new(functions: &'static Functions) -> Result<Self, CudaError> {
        let mut made = std::ptr::null_mut();
        // SAFETY: `made` may be written to.
        unsafe { call!(functions, cublasLtMatmulPreferenceCreate(&mut made))? };
        Ok(Self(functions, made))
    }

    fn set<T: Copy>(&self, attribute: Preferred, value: T) -> Result<(), CudaError> {
        let (value, bytes) = ((&raw const value).cast(), size_of::<T>());
        // SAFETY: the attribute is of so many bytes.
        unsafe { call!(self.0, cublasLtMatmulPreferenceSetAttribute(self.1, attribute as u32, value, bytes)) }
    }
}

impl Plan {
    /// The algorithm that the library thinks is the fastest for a problem, with at most so many bytes of workspace and a bias at this
    /// address, if there is one; none where it has none.
    ///
    /// Matrices of the library are rows of columns: ours, which lie row by row, are their own transposes there. So the results' rows
    /// there are our columns, and the weights come first.
    ///
    /// # Errors
    /// What the library says.
    pub fn find(
        functions: &'static Functions,
        handle: Opaque,
        precision: Precision,
        problem: Problem,
        bias_at: Option<u64>,
        workspace: usize,
    ) -> Result<Option<Self>, CudaError> {
        let Problem { rows, columns, depth, strides, wide, add: _, bias: _, alignments } = problem;
        let stored = match precision {
            Precision::F16 | Precision::F16Promoted => cudaDataType_t::CUDA_R_16F,
            Precision::Bf16 => cudaDataType_t::CUDA_R_16BF,
        };
        let result = if wide { cudaDataType_t::CUDA_R_32F } else { stored };
        let operation = Operation::new(functions)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, OP_T)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, OP_N)?;
        if let Some(address) = bias_at {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
            // Before the algorithm is asked for, which may depend on how it is aligned.
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, address)?;
        }
        let layouts = [
            Layout::new(functions, stored, [depth, columns, depth])?,
            Layout::new(functions, stored, [depth, rows, strides[0]])?,
            Layout::new(functions, result, [columns, rows, strides[1]])?,
        ];
        let preference = Preference::new(functions)?;
        preference.set(Preferred::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace as u64)?;
        // Where the depth is divided, its parts are float32 too: not of the results' type.
        let reduction = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Preferred::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction)?;
        let [a, b, d] = alignments;
        for (attribute, bytes) in [
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
            (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
        ] {
            preference.set(attribute, bytes)?;
        }
        let (mut found, mut count) = (Found::NONE, 0);
        let [a, b, d] = [&layouts[0], &layouts[1], &layouts[2]].map(|layout| layout.1);
        // SAFETY: all live; there is room for the one that is asked for.
        let status = unsafe {
            (functions.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                operation.1,
                a,
                b,
                d,
                d,
                preference.1,
                1,
                &mut found,
                &mut count,
            )
        };
        if NO_ALGORITHM.contains(&status) {
            return Ok(None);
        }
        functions.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let usable = count > 0 && found.state == 0 && found.workspace <= workspace;
        Ok(usable.then_some(Self { functions, operation, layouts, algorithm: found.algorithm }))
    }

    /// Where the bias is from now on.
    ///
    /// # Errors
    /// What the library says.
    pub fn set_bias(&self, address: u64) -> Result<(), CudaError> {
        self.operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, address)
    }

    /// Queues it: weights, what they are multiplied with, and results. False where the library finds that it can't after all.
    ///
    /// # Safety
    /// The addresses are those of the problem, the stream's context is current, and the workspace is as large as it was said to be when the plan was
    /// found.
    pub unsafe fn run(
        &self,
        handle: Opaque,
        [a, b, d]: [u64; 3],
        add: bool,
        (workspace, bytes): (u64, usize),
        stream: Opaque,
    ) -> Result<bool, CudaError> {
        let (alpha, beta) = (1.0, if add { 1.0 } else { 0.0 });
        let [a_layout, b_layout, d_layout] =
            [&self.layouts[0], &self.layouts[1], &self.layouts[2]].map(|layout| layout.1);
        // SAFETY: the caller's promise; scales are read before the function returns.
        let status = unsafe {
            (self.functions.cublasLtMatmul)(
                handle,
                self.operation.1,
                &alpha,
                a,
                a_layout,
                b,
                b_layout,
                &beta,
                d,
                d_layout,
                d,
                d_layout,
                &self.algorithm,
                workspace,
                bytes,
                stream,
            )
        };
        if NO_ALGORITHM.contains(&status) {
            return Ok(false);
        }
        self.functions.check("cublasLtMatmul", status).map(|()| true)
    }
}
