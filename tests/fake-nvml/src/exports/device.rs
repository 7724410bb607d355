//! Calls on one GPU that answer with numbers and texts.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlDevice_t, nvmlMarginTemperature_t, nvmlMemory_t, nvmlMemory_v2_t,
    nvmlPciInfo_t, nvmlReturn_t, nvmlTemperature_t, nvmlUtilization_t,
};

use super::write::{on, put, put_text, version_word};
use crate::state::{
    ARGUMENT_VERSION_MISMATCH, Found, INVALID_ARGUMENT, NOT_SUPPORTED, now_ms, pause,
};

pub(super) const MIB: u64 = 1 << 20;

/// Instances split memory evenly; the GPU itself has all of it.
pub(super) fn memory_bytes(found: &Found, mib: u64) -> u64 {
    let share = if found.slot == 0 { 1 } else { u64::from(found.gpu.mig.max(1)) };
    mib * MIB / share
}

pub(super) fn pci_bus_id(found: &Found) -> String {
    if found.gpu.pci_bus_id.is_empty() {
        format!("00000000:{:02X}:00.0", found.index + 1)
    } else {
        found.gpu.pci_bus_id.clone()
    }
}

/// Functions with one place for one answer: name, type of the place, what stands there.
macro_rules! one_answer {
    ($($name:ident: $ty:ty = |$found:ident| $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: nvmlDevice_t, place: *mut $ty) -> nvmlReturn_t {
            // SAFETY: the caller's place of this type.
            on(device, stringify!($name), |$found| unsafe { put(place, $value) })
        }
    )*};
}

/// Functions with a buffer for a text.
macro_rules! one_text {
    ($($name:ident = |$found:ident| $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            device: nvmlDevice_t,
            place: *mut c_char,
            len: u32,
        ) -> nvmlReturn_t {
            // SAFETY: the caller's buffer of `len` bytes.
            on(device, stringify!($name), |$found| unsafe { put_text(place, len, &$value) })
        }
    )*};
}

one_text! {
    nvmlDeviceGetName = |f| f.gpu.name;
    nvmlDeviceGetSerial = |f| f.gpu.serial;
    nvmlDeviceGetUUID = |f| match f.slot {
        0 => f.gpu.uuid.clone(),
        slot => format!("MIG-{}-{slot}", f.gpu.uuid.trim_start_matches("GPU-")),
    };
}

one_answer! {
    nvmlDeviceGetIndex: u32 = |f| index(f);
    nvmlDeviceGetMinorNumber: u32 = |f| index(f);
    nvmlDeviceGetArchitecture: u32 = |f| f.gpu.architecture;
    nvmlDeviceGetPowerUsage: u32 = |f| f.gpu.power_w * 1_000;
    nvmlDeviceGetEnforcedPowerLimit: u32 = |f| f.gpu.power_limit_w * 1_000;
    nvmlDeviceGetTotalEnergyConsumption: u64 = |f| u64::from(f.gpu.power_w) * now_ms();
    nvmlDeviceGetCurrentClocksThrottleReasons: u64 = |f| f.gpu.throttle_reasons;
    nvmlDeviceGetCurrentClocksEventReasons: u64 = |f| f.gpu.throttle_reasons;
    nvmlDeviceGetPerformanceState: u32 = |f| f.gpu.performance_state;
    nvmlDeviceGetPcieReplayCounter: u32 = |f| f.gpu.pcie.replay;
    nvmlDeviceGetCurrPcieLinkGeneration: u32 = |f| f.gpu.pcie.generation;
    nvmlDeviceGetMaxPcieLinkGeneration: u32 = |f| f.gpu.pcie.generation_max;
    nvmlDeviceGetCurrPcieLinkWidth: u32 = |f| f.gpu.pcie.width;
    nvmlDeviceGetMaxPcieLinkWidth: u32 = |f| f.gpu.pcie.width_max;
    nvmlDeviceGetRetiredPagesPendingStatus: u32 = |f| u32::from(f.gpu.remap.pending);
    nvmlDeviceGetSupportedEventTypes: u64 = |f| f.gpu.event_types;
    nvmlDeviceGetMemoryInfo: nvmlMemory_t = |f| {
        let (total, used) = (f.gpu.memory_total_mib, f.gpu.memory_used_mib);
        nvmlMemory_t {
            total: memory_bytes(f, total),
            free: memory_bytes(f, total.saturating_sub(used)),
            used: memory_bytes(f, used),
        }
    };
    nvmlDeviceGetBAR1MemoryInfo: nvmlBAR1Memory_t = |f| nvmlBAR1Memory_t {
        bar1Total: memory_bytes(f, f.gpu.memory_total_mib),
        bar1Free: memory_bytes(f, f.gpu.memory_total_mib.saturating_sub(1)),
        bar1Used: MIB,
    };
    nvmlDeviceGetPciInfo_v3: nvmlPciInfo_t = |f| pci_info(f);
}

fn index(found: &Found) -> u32 {
    u32::try_from(found.index).unwrap_or(u32::MAX)
}

fn pci_info(found: &Found) -> nvmlPciInfo_t {
    let id = pci_bus_id(found);
    let mut bus_id: [c_char; 32] = [0; 32];
    for (place, byte) in bus_id.iter_mut().zip(id.bytes().take(31)) {
        *place = c_char::from_ne_bytes([byte]);
    }
    nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: index(found) + 1,
        device: 0,
        pciDeviceId: 0x20b2_10de,
        pciSubSystemId: 0,
        busId: bus_id,
    }
}

/// Not on a GPU that is cut into instances: the driver has no such figure then.
fn whole_gpu(found: &Found) -> Result<(), nvmlReturn_t> {
    if found.gpu.mig > 0 { Err(NOT_SUPPORTED) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    place: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetUtilizationRates", |f| {
        let rates = nvmlUtilization_t { gpu: f.gpu.utilization, memory: f.gpu.memory_utilization };
        // SAFETY: the caller's place of this type.
        whole_gpu(f).map_or_else(|code| code, |()| unsafe { put(place, rates) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEncoderUtilization(
    device: nvmlDevice_t,
    place: *mut u32,
    period_us: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetEncoderUtilization", |f| {
        // SAFETY: the caller's two places for numbers.
        unsafe { put(period_us, 167_000).max(put(place, f.gpu.encoder_utilization)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDecoderUtilization(
    device: nvmlDevice_t,
    place: *mut u32,
    period_us: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetDecoderUtilization", |f| {
        // SAFETY: the caller's two places for numbers.
        unsafe { put(period_us, 167_000).max(put(place, f.gpu.decoder_utilization)) }
    })
}

/// The caller's version word, if it is the one of `version`.
unsafe fn versioned<T>(place: *mut T, version: u32) -> Result<(), nvmlReturn_t> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null; every versioned struct of nvml.h starts with this word.
    let word = unsafe { place.cast::<u32>().read() };
    if word == version_word::<T>(version) { Ok(()) } else { Err(ARGUMENT_VERSION_MISMATCH) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    place: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetMemoryInfo_v2", |f| {
        let (total, used) = (f.gpu.memory_total_mib, f.gpu.memory_used_mib);
        let answer = nvmlMemory_v2_t {
            version: version_word::<nvmlMemory_v2_t>(2),
            total: memory_bytes(f, total),
            reserved: memory_bytes(f, f.gpu.memory_reserved_mib),
            free: memory_bytes(f, total.saturating_sub(used)),
            used: memory_bytes(f, used),
        };
        // SAFETY: the caller's place of this type.
        unsafe { versioned(place, 2).map_or_else(|code| code, |()| put(place, answer)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: u32,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetTemperature", |f| {
        // SAFETY: the caller's place for one number.
        unsafe { put(place, u32::try_from(f.gpu.temperature_c).unwrap_or(0)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureV(
    device: nvmlDevice_t,
    place: *mut nvmlTemperature_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetTemperatureV", |f| {
        let answer = nvmlTemperature_t {
            version: version_word::<nvmlTemperature_t>(1),
            sensorType: 0,
            temperature: f.gpu.temperature_c,
        };
        // SAFETY: the caller's place of this type.
        unsafe { versioned(place, 1).map_or_else(|code| code, |()| put(place, answer)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    kind: u32,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetTemperatureThreshold", |f| {
        let degrees = match kind {
            0 => f.gpu.shutdown_c,
            1 => f.gpu.slowdown_c,
            2 | 3 => f.gpu.slowdown_c.saturating_sub(2),
            _ => return NOT_SUPPORTED,
        };
        // SAFETY: the caller's place for one number.
        unsafe { put(place, degrees) }
    })
}

/// Degrees until the highest temperature of normal work, two below slowdown.
pub(super) fn margin_c(found: &Found) -> i32 {
    i32::try_from(found.gpu.slowdown_c).unwrap_or(0) - 2 - found.gpu.temperature_c
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMarginTemperature(
    device: nvmlDevice_t,
    place: *mut nvmlMarginTemperature_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetMarginTemperature", |f| {
        let answer = nvmlMarginTemperature_t {
            version: version_word::<nvmlMarginTemperature_t>(1),
            marginTemperature: margin_c(f),
        };
        // SAFETY: the caller's place of this type.
        unsafe { versioned(place, 1).map_or_else(|code| code, |()| put(place, answer)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: nvmlDevice_t,
    clock: u32,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetClockInfo", |f| {
        let mhz = if clock == 2 { f.gpu.memory_clock_mhz } else { f.gpu.sm_clock_mhz };
        // SAFETY: the caller's place for one number.
        unsafe { put(place, mhz) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: nvmlDevice_t,
    clock: u32,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetMaxClockInfo", |f| {
        let mhz = if clock == 2 { f.gpu.memory_clock_max_mhz } else { f.gpu.sm_clock_max_mhz };
        // SAFETY: the caller's place for one number.
        unsafe { put(place, mhz) }
    })
}

/// The driver measures for 20 ms, and so does this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPcieThroughput(
    device: nvmlDevice_t,
    counter: u32,
    place: *mut u32,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetPcieThroughput", |f| {
        pause(std::time::Duration::from_millis(20));
        let mib = if counter == 0 { f.gpu.pcie.tx_mib_s } else { f.gpu.pcie.rx_mib_s };
        // SAFETY: the caller's place for one number.
        unsafe { put(place, u32::try_from(mib * 1_024).unwrap_or(u32::MAX)) }
    })
}
