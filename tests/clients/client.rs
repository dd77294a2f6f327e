//! A client in Rust, with declarations of its own. Of the options it knows the first two fields only, as a program does that
//! was built against an older header.
#![deny(warnings)]

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;

#[repr(C)]
struct Arg {
    size: usize,
    kind: c_int,
    element: c_int,
    device: c_int,
    rank: c_int,
    data: *mut c_void,
    shape: [i64; 8],
    strides: [i64; 8],
    integer: i64,
    real: f64,
}

#[repr(C)]
struct CompileOptions {
    size: usize,
    target: *const c_char,
}

#[link(name = "tilec")]
extern "C" {
    fn tilec_context_create(allocator: *const c_void, out: *mut *mut c_void) -> c_int;
    fn tilec_context_destroy(context: *mut c_void);
    fn tilec_tensor(element: c_int, data: *mut c_void, rank: c_int, shape: *const i64) -> Arg;
    fn tilec_real(value: f64) -> Arg;
    fn tilec_diagnostics_text(diagnostics: *const c_void) -> *const c_char;
    fn tilec_diagnostics_destroy(diagnostics: *mut c_void);
    fn tilec_emulate(
        context: *mut c_void, name: *const c_char, text: *const c_char, length: usize, options: *const CompileOptions,
        kernel: *const c_char, args: *const Arg, count: usize, emulation: *const c_void, diagnostics: *mut *mut c_void,
    ) -> c_int;
}

const F32: c_int = 12; // TILEC_F32
const SOURCE: &[u8] = b"kernel scale(x: f32[N], factor: f32, z: out f32[N]) {
    grid (b in N) threads 32 { thread (t in 1) { z[b] = x[b] * factor; } }
}";

/// The result, or what the library said.
fn scale(context: *mut c_void, x: &mut [f32], factor: f64) -> Result<Vec<f32>, String> {
    let mut z = vec![0f32; x.len()];
    let count = x.len() as i64;
    let options = CompileOptions { size: std::mem::size_of::<CompileOptions>(), target: b"sm_80\0".as_ptr().cast() };
    let mut said = ptr::null_mut();
    unsafe {
        let args = [
            tilec_tensor(F32, x.as_mut_ptr().cast(), 1, &count),
            tilec_real(factor),
            tilec_tensor(F32, z.as_mut_ptr().cast(), 1, &count),
        ];
        let status = tilec_emulate(
            context, b"scale.tile\0".as_ptr().cast(), SOURCE.as_ptr().cast(), SOURCE.len(), &options, b"scale\0".as_ptr().cast(),
            args.as_ptr(), args.len(), ptr::null(), &mut said,
        );
        let text = CStr::from_ptr(tilec_diagnostics_text(said)).to_string_lossy().into_owned();
        tilec_diagnostics_destroy(said);
        if status == 0 { Ok(z) } else { Err(text) }
    }
}

fn main() {
    let mut context = ptr::null_mut();
    unsafe { assert_eq!(tilec_context_create(ptr::null(), &mut context), 0) };
    assert_eq!(scale(context, &mut [1.0, 2.0, 3.0], 0.5), Ok(vec![0.5, 1.0, 1.5]));
    unsafe { tilec_context_destroy(context) };
}
