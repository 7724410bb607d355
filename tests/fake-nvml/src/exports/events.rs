//! Event sets: Xids reach those who registered the GPU.

use std::{
    collections::BTreeMap,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use super::write::{on, put};
use crate::state::{
    INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, TIMEOUT, encode, next_event, now_ms, pause,
    system_gate,
};

/// How often a waiting call looks for an event.
const WAIT_POLL: Duration = Duration::from_millis(10);

/// By set: event bits by index of the GPU.
type Sets = BTreeMap<usize, BTreeMap<usize, u64>>;

static SETS: Mutex<Sets> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(place: *mut nvmlEventSet_t) -> nvmlReturn_t {
    if let Err(code) = system_gate("nvmlEventSetCreate") {
        return code;
    }
    let mut sets = sets();
    let id = sets.last_key_value().map_or(1, |(id, _)| id + 1);
    sets.insert(id, BTreeMap::new());
    // SAFETY: the caller's place for one handle.
    unsafe { put(place, ptr::without_provenance_mut(id)) }
}

/// The set stays valid when a GPU refuses, as nvml.h says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: u64,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    on(device, "nvmlDeviceRegisterEvents", |f| {
        if types & !f.gpu.event_types != 0 || f.gpu.event_types == 0 {
            return NOT_SUPPORTED;
        }
        match sets().get_mut(&set.addr()) {
            Some(registered) => {
                *registered.entry(f.index).or_default() |= types;
                SUCCESS
            }
            None => INVALID_ARGUMENT,
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: u32,
) -> nvmlReturn_t {
    let until = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        if let Err(code) = system_gate("nvmlEventSetWait_v2") {
            return code;
        }
        let Some(registered) = sets().get(&set.addr()).cloned() else { return INVALID_ARGUMENT };
        let xids = u64::from(nvmlEventTypeXidCriticalError);
        let wants = |index: usize| registered.get(&index).is_some_and(|bits| bits & xids != 0);
        if let Some(event) = next_event(now_ms(), wants) {
            let answer = nvmlEventData_t {
                device: ptr::without_provenance_mut(encode(event.gpu, 0)),
                eventType: xids,
                eventData: event.xid,
                gpuInstanceId: event.gpu_instance,
                computeInstanceId: event.compute_instance,
            };
            // SAFETY: the caller's place for one event.
            return unsafe { put(data, answer) };
        }
        if Instant::now() >= until {
            return TIMEOUT;
        }
        pause(WAIT_POLL);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    match system_gate("nvmlEventSetFree") {
        Ok(_) if sets().remove(&set.addr()).is_some() => SUCCESS,
        Ok(_) => INVALID_ARGUMENT,
        Err(code) => code,
    }
}
