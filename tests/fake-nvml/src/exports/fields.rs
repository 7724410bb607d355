//! `nvmlDeviceGetFieldValues`: many figures in one call, each with its own code.

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t};

use super::{device::margin_c, write::on};
use crate::state::{Found, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, now_ms};

/// Value types of nvml.h that are used here.
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;
const SIGNED_INT: u32 = 5;

enum Value {
    Small(u32),
    Large(u64),
    Signed(i32),
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: i32,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceGetFieldValues", |found| {
        let Ok(count) = usize::try_from(count) else { return INVALID_ARGUMENT };
        if values.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: not null, and the caller gave `count` initialised entries.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        for value in values {
            answer(found, value);
        }
        SUCCESS
    })
}

fn answer(found: &Found, place: &mut nvmlFieldValue_t) {
    let name = format!("field:{}", place.fieldId);
    let forced = found.gpu.fail.get(&name).copied().unwrap_or(SUCCESS);
    let unsupported = found.gpu.unsupported.contains(&name);
    let value = field(found, place.fieldId).filter(|_| forced == SUCCESS && !unsupported);
    place.timestamp = i64::try_from(now_ms() * 1_000).unwrap_or(0);
    place.nvmlReturn = SUCCESS;
    (place.valueType, place.value) = match value {
        Some(Value::Small(v)) => (UNSIGNED_INT, nvmlValue_t { uiVal: v }),
        Some(Value::Large(v)) => (UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: v }),
        Some(Value::Signed(v)) => (SIGNED_INT, nvmlValue_t { siVal: v }),
        None => {
            place.nvmlReturn = if forced == SUCCESS { NOT_SUPPORTED } else { forced };
            (UNSIGNED_INT, nvmlValue_t { ullVal: 0 })
        }
    };
}

fn field(found: &Found, id: u32) -> Option<Value> {
    let gpu = &found.gpu;
    let degrees = |c: u32| i32::try_from(c).unwrap_or(0);
    Some(match id {
        82 => Value::Small(gpu.memory_temperature_c),
        83 => Value::Large(u64::from(gpu.power_w) * now_ms()),
        94 => Value::Small(gpu.pcie.replay),
        142 => Value::Small(gpu.remap.corrected),
        143 => Value::Small(gpu.remap.uncorrected),
        144 => Value::Small(u32::from(gpu.remap.pending)),
        145 => Value::Small(u32::from(gpu.remap.failure)),
        185 | 186 => Value::Small(gpu.power_w * 1_000),
        192 => Value::Signed(margin_c(found)),
        // Limits as distance from the highest temperature of normal work, two below slowdown.
        193 => Value::Signed(degrees(gpu.slowdown_c) - 2 - degrees(gpu.shutdown_c)),
        194 => Value::Signed(-2),
        195 | 196 => Value::Signed(0),
        197 => Value::Large(bytes_until_now(gpu.pcie.tx_mib_s)),
        198 => Value::Large(bytes_until_now(gpu.pcie.rx_mib_s)),
        230 => Value::Small(gpu.recovery_action),
        _ => return None,
    })
}

/// A counter that grew at this rate since the process started.
fn bytes_until_now(mib_s: u64) -> u64 {
    (mib_s << 20) * now_ms() / 1_000
}
