//! Library, driver and the list of GPUs.

use std::{ffi::CStr, ffi::c_char, ptr};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::write::{put, put_text};
use crate::state::{self, INVALID_ARGUMENT, NOT_FOUND, encode, gpu_gate, order, system_gate};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    state::init()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> nvmlReturn_t {
    state::init()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    state::shutdown()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let text = match code {
        0 => c"Success",
        3 => c"Not Supported",
        9 => c"Driver Not Loaded",
        15 => c"GPU is lost",
        18 => c"Driver/library version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(place: *mut c_char, len: u32) -> nvmlReturn_t {
    match system_gate("nvmlSystemGetDriverVersion") {
        // SAFETY: the caller's buffer of `len` bytes.
        Ok(view) => unsafe { put_text(place, len, &view.scenario.driver.version) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(place: *mut c_char, len: u32) -> nvmlReturn_t {
    match system_gate("nvmlSystemGetNVMLVersion") {
        // SAFETY: the caller's buffer of `len` bytes.
        Ok(view) => unsafe { put_text(place, len, &view.scenario.driver.nvml_version) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(place: *mut i32) -> nvmlReturn_t {
    match system_gate("nvmlSystemGetCudaDriverVersion_v2") {
        // SAFETY: the caller's place for one number.
        Ok(view) => unsafe { put(place, view.scenario.driver.cuda) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(place: *mut u32) -> nvmlReturn_t {
    let count = system_gate("nvmlDeviceGetCount_v2").and_then(|view| order(&view));
    match count {
        // SAFETY: the caller's place for one number.
        Ok(order) => unsafe { put(place, u32::try_from(order.len()).unwrap_or(u32::MAX)) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: u32,
    place: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let handle = encode(usize::try_from(index).unwrap_or(usize::MAX >> 9), 0);
    match gpu_gate(handle, "nvmlDeviceGetHandleByIndex_v2") {
        // SAFETY: the caller's place for one handle.
        Ok(_) => unsafe { put(place, ptr::without_provenance_mut(handle)) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    place: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and nvml.h asks for a text closed by a zero.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    let listed = system_gate("nvmlDeviceGetHandleByUUID").and_then(|view| order(&view));
    let found = listed.and_then(|all| all.iter().position(|u| *u == uuid).ok_or(NOT_FOUND));
    match found.and_then(|i| gpu_gate(encode(i, 0), "nvmlDeviceGetHandleByUUID").map(|f| f.index)) {
        // SAFETY: the caller's place for one handle.
        Ok(index) => unsafe { put(place, ptr::without_provenance_mut(encode(index, 0))) },
        Err(code) => code,
    }
}
