//! Raw pointers in one place: numbers and texts out.

use std::ffi::c_char;

use crate::{
    scenario::Code,
    state::{Found, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, gpu_gate},
};

use nvml_wrapper_sys::bindings::nvmlDevice_t;

/// Writes `value` where the client asked for it.
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Code {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and nvml.h asks the caller for a valid place of this type.
    unsafe { place.write(value) };
    SUCCESS
}

/// Writes a text with its closing zero into `length` bytes.
pub(super) unsafe fn put_text(place: *mut c_char, length: u32, text: &str) -> Code {
    let room = usize::try_from(length).unwrap_or(0);
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() + 1 > room {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller gave `length` bytes, and text and zero fit into them.
    unsafe {
        place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        place.add(text.len()).write(0);
    }
    SUCCESS
}

/// Runs `act` on the GPU behind `device` if the scenario lets this function through.
pub(super) fn on(device: nvmlDevice_t, function: &str, act: impl FnOnce(&Found) -> Code) -> Code {
    match gpu_gate(device.addr(), function) {
        Ok(found) => act(&found),
        Err(code) => code,
    }
}

/// NVML's version word: size in the low bits, version from bit 24.
pub(super) const fn version_word<T>(version: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "structs of nvml.h are far below 16 MiB")]
    let size = size_of::<T>() as u32;
    size | version << 24
}
