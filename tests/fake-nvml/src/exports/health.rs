//! Error counters, retired memory, and lists: what grows with a GPU's life and use.

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use super::{
    device::MIB,
    write::{on, put},
};
use crate::state::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEccMode(
    device: nvmlDevice_t,
    current: *mut u32,
    pending: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetEccMode", |f| {
        let mode = u32::from(f.gpu.ecc.enabled);
        // SAFETY: the caller's two places for numbers.
        unsafe { put(current, mode).max(put(pending, mode)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    error: u32,
    counter: u32,
    place: *mut u64,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetTotalEccErrors", |f| {
        let ecc = &f.gpu.ecc;
        let count = match (error, counter) {
            (0, 0) => ecc.volatile_corrected,
            (1, 0) => ecc.volatile_uncorrected,
            (0, 1) => ecc.aggregate_corrected,
            (1, 1) => ecc.aggregate_uncorrected,
            _ => return INVALID_ARGUMENT,
        };
        if !ecc.enabled {
            return NOT_SUPPORTED;
        }
        // SAFETY: the caller's place for one number.
        unsafe { put(place, count) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: nvmlDevice_t,
    corrected: *mut u32,
    uncorrected: *mut u32,
    pending: *mut u32,
    failure: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetRemappedRows", |f| {
        let remap = &f.gpu.remap;
        // SAFETY: the caller's four places for numbers.
        unsafe {
            put(corrected, remap.corrected)
                .max(put(uncorrected, remap.uncorrected))
                .max(put(pending, u32::from(remap.pending)))
                .max(put(failure, u32::from(remap.failure)))
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetRetiredPages(
    device: nvmlDevice_t,
    cause: u32,
    count: *mut u32,
    addresses: *mut u64,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetRetiredPages", |f| {
        let pages = if cause == 1 { f.gpu.retired_pages } else { 0 };
        let fill = |place: usize| u64::try_from(place).unwrap_or(0) << 12;
        // SAFETY: the caller's count, and as many addresses as the count says.
        unsafe { put_list(count, addresses, (0..pages).map(|p| fill(p as usize)).collect()) }
    })
}

/// The way of all lists of nvml.h: too little room answers with the number needed.
unsafe fn put_list<T>(count: *mut u32, places: *mut T, items: Vec<T>) -> nvmlReturn_t {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    let needed = u32::try_from(items.len()).unwrap_or(u32::MAX);
    // SAFETY: not null, the caller's number.
    let room = unsafe { count.replace(needed) };
    if needed > room || (places.is_null() && needed > 0) {
        return INSUFFICIENT_SIZE;
    }
    for (offset, item) in items.into_iter().enumerate() {
        // SAFETY: `offset` is below `needed`, which the caller has room for.
        unsafe { places.add(offset).write(item) };
    }
    SUCCESS
}

unsafe fn processes(
    device: nvmlDevice_t,
    function: &str,
    count: *mut u32,
    places: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    on(device, function, |f| {
        let list = f.gpu.processes.iter().map(|process| nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.memory_mib.map_or(u64::MAX, |mib| mib * MIB),
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        });
        // SAFETY: the caller's count, and as many entries as the count says.
        unsafe { put_list(count, places, list.collect()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut u32,
    places: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: as the caller promises.
    unsafe { processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", count, places) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: nvmlDevice_t,
    count: *mut u32,
    places: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: as the caller promises.
    unsafe { processes(device, "nvmlDeviceGetComputeRunningProcesses_v2", count, places) }
}
