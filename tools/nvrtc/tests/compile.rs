//! The tool as it is used: kernels in a folder, compiled by both versions of NVRTC. Skips where those are not fetched.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const HEADER: &str =
    "#if SAPIENS_ARCH != 75 && SAPIENS_ARCH != 80\n#error which card?\n#endif\nusing u32 = unsigned int;\n";

const AXPY: &str = r#"// y = a x + y.
// nvrtc: --fmad=false
#include "device.cuh"

extern "C" __global__ void axpy(float a, const float* x, float* y, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"#;

/// Holds more in registers than a block of 1024 threads can have.
const SPILLS: &str = r#"
extern "C" __global__ void __launch_bounds__(1024) spills(const float* x, float* y, int n) {
    __shared__ float shared[128];
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = x[i * 1024 + threadIdx.x];
    shared[threadIdx.x & 127] = v[3];
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i + 7) % 96] + shared[k & 127];
#pragma unroll
    for (int i = 0; i < 96; i++) y[i * 1024 + threadIdx.x] = v[i];
}
"#;

fn tool(source: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapiens-nvrtc"));
    command.arg("--source").arg(source).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs it, which must succeed, and gives what it prints.
fn succeed(source: &Path, arguments: &[&str]) -> String {
    let output = tool(source, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs it, which must fail, and gives what it complains of.
fn fail(source: &Path, arguments: &[&str]) -> String {
    let output = tool(source, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stdout(&output));
    stderr(&output)
}

/// A folder with a kernel; none, and a line that says so, where a version of NVRTC is missing.
fn folder_for(test: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("device.cuh"), HEADER).unwrap();
    fs::write(folder.path().join("axpy.cu"), AXPY).unwrap();
    let output = tool(folder.path(), &["machine"]);
    if stderr(&output).contains("tools/fetch-cuda.sh") {
        println!("{test}: skipped, NVRTC is not here (tools/fetch-cuda.sh fetches it)");
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    Some(folder)
}

#[test]
fn ptx_is_written_and_checked() {
    let Some(folder) = folder_for("ptx_is_written_and_checked") else { return };
    let folder = folder.path();
    let missing = fail(folder, &["check"]);
    assert!(missing.contains("compute_80/axpy.ptx is missing"), "{missing}");

    let first = succeed(folder, &["ptx"]);
    assert_eq!(first.matches("written").count(), 2, "{first}");
    let ptx = fs::read_to_string(folder.join("ptx/compute_75/axpy.ptx")).unwrap();
    assert!(ptx.contains(".target sm_75") && ptx.contains(".entry axpy("), "{ptx}");
    assert!(ptx.contains("mul.rn.f32") && !ptx.contains("fma.rn.f32"), "without --fmad=false:\n{ptx}");
    assert!(ptx.ends_with("}\n") && !ptx.contains("Build ID"), "{ptx}");
    let again = succeed(folder, &["ptx"]);
    assert_eq!(again.matches("as it was").count(), 2, "{again}");
    succeed(folder, &["check"]);

    fs::write(folder.join("axpy.cu"), AXPY.replace("+ y[i]", "- y[i]")).unwrap();
    fs::write(folder.join("ptx/compute_80/gone.ptx"), "").unwrap();
    let different = fail(folder, &["check"]);
    for part in ["compute_75/axpy.ptx is not", "compute_80/gone.ptx has no source", "3 files", "make ptx"] {
        assert!(different.contains(part), "{part}: {different}");
    }
    let removed = succeed(folder, &["ptx"]);
    assert!(removed.contains("gone.ptx: removed"), "{removed}");
    succeed(folder, &["check"]);
}

#[test]
fn what_a_compiler_refuses_is_said_once_with_the_name_of_the_file() {
    let Some(folder) = folder_for("what_a_compiler_refuses_is_said_once") else { return };
    fs::write(folder.path().join("wrong.cu"), "__global__ void wrong() { nonsense; }\n").unwrap();
    // The two compilers word it differently.
    for (command, targets, times) in
        [("ptx", "compute_75, compute_80", 1), ("machine", "sm_75, sm_80, sm_86", 2)]
    {
        let error = fail(folder.path(), &[command]);
        assert!(error.contains(&format!("wrong.cu ({targets}")), "{error}");
        assert_eq!(error.matches("\"nonsense\" is undefined").count(), times, "{error}");
        assert!(!folder.path().join("ptx").exists(), "half of the PTX was written");
    }
}

#[test]
fn spills_must_be_explained() {
    let Some(folder) = folder_for("spills_must_be_explained") else { return };
    let folder = folder.path();
    fs::write(folder.join("spills.cu"), SPILLS).unwrap();
    let error = fail(folder, &["machine"]);
    for arch in ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] {
        assert!(error.contains(&format!("spills.cu, kernel spills on {arch}: spills")), "{arch}: {error}");
    }
    assert!(error.contains("spills.toml"), "{error}");

    let entry = |kernel: &str| {
        format!("[[spill]]\nkernel = \"{kernel}\"\narch = \"*\"\nmax_bytes = 100000\nwhy = \"a test\"\n")
    };
    fs::write(folder.join("spills.toml"), entry("spills") + &entry("axpy")).unwrap();
    let json = folder.join("table.json");
    let output = tool(folder, &["machine", "--json", json.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("kernel axpy doesn't spill any more"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("kernel spills"), "{}", stderr(&output));

    let rows: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(rows.len(), 14, "two kernels, seven kinds of cards");
    for row in &rows {
        let spills = row["kernel"] == "spills";
        assert_eq!(row["shared_bytes"], if spills { 512 } else { 0 }, "{row}");
        assert_eq!(row["stack_bytes"].as_u64() > Some(0), spills, "{row}");
        assert_eq!(row["spill_store_bytes"].as_u64() > Some(0), spills, "{row}");
        assert!(row["registers"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn without_sources_there_is_nothing_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for source in [folder.path(), &folder.path().join("none")] {
        for command in ["ptx", "check", "machine"] {
            let printed = succeed(source, &[command, "--nvrtc-dir", "/nowhere"]);
            assert!(printed.contains("nothing to compile"), "{printed}");
        }
    }
}
