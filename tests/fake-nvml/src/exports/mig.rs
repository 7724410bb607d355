//! GPUs cut into instances.

use std::ptr;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::write::{on, put};
use crate::state::{Found, INVALID_ARGUMENT, NOT_FOUND, encode};

/// Most instances of one GPU.
const INSTANCES_MAX: u32 = 7;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut u32,
    pending: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetMigMode", |f| {
        let mode = u32::from(f.gpu.mig > 0);
        // SAFETY: the caller's two places for numbers.
        unsafe { put(current, mode).max(put(pending, mode)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(
    device: nvmlDevice_t,
    place: *mut u32,
) -> nvmlReturn_t {
    // SAFETY: the caller's place for one number.
    on(device, "nvmlDeviceGetMaxMigDeviceCount", |_| unsafe { put(place, INSTANCES_MAX) })
}

/// Instances stand at odd places only: a client must step over the holes, as on real GPUs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: u32,
    place: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetMigDeviceHandleByIndex", |f| {
        if index >= INSTANCES_MAX {
            return INVALID_ARGUMENT;
        }
        let filled = if f.gpu.mig > 3 { index < f.gpu.mig } else { index % 2 == 1 };
        let slot = if f.gpu.mig > 3 { index + 1 } else { index / 2 + 1 };
        if !filled || slot > f.gpu.mig {
            return NOT_FOUND;
        }
        let handle = encode(f.index, usize::try_from(slot).unwrap_or(0));
        // SAFETY: the caller's place for one handle.
        unsafe { put(place, ptr::without_provenance_mut(handle)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: nvmlDevice_t,
    place: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", |f| {
        let handle = ptr::without_provenance_mut(encode(f.index, 0));
        // SAFETY: the caller's place for one handle.
        instance(f).map_or_else(|code| code, |_| unsafe { put(place, handle) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(
    device: nvmlDevice_t,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceIsMigDeviceHandle", |f| {
        // SAFETY: the caller's place for one number.
        unsafe { put(place, u32::from(f.slot > 0)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(
    device: nvmlDevice_t,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetGpuInstanceId", |f| {
        // SAFETY: the caller's place for one number.
        instance(f).map_or_else(|code| code, |slot| unsafe { put(place, slot + 6) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(
    device: nvmlDevice_t,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetComputeInstanceId", |f| {
        // SAFETY: the caller's place for one number.
        instance(f).map_or_else(|code| code, |_| unsafe { put(place, 0) })
    })
}

fn instance(found: &Found) -> Result<u32, nvmlReturn_t> {
    if found.slot == 0 { Err(INVALID_ARGUMENT) } else { Ok(found.slot) }
}
