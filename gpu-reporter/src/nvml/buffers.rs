//! Texts, lists and unions as the driver fills them.
#![expect(unsafe_code, reason = "the driver answers with a union")]

use std::ffi::{CStr, c_char};

use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlProcessInfo_t};

use super::{
    Code, Failure,
    values::{FieldValue, Running, known},
};

/// Longest text that NVML gives, UUIDs of MIG instances and product names (96 in nvml.h).
pub(super) const TEXT_BYTES: usize = 128;
/// Most processes that are listed for one GPU.
const PROCESSES_MAX: usize = 1_024;

pub(super) fn buffer(text: &mut [c_char; TEXT_BYTES]) -> (*mut c_char, u32) {
    (text.as_mut_ptr(), u32::try_from(TEXT_BYTES).unwrap_or(0))
}

/// Text up to the first zero; what is not UTF-8 is replaced.
pub(super) fn shown(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|c| c.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().chars().filter(|c| !c.is_control()).collect(),
    )
}

pub(super) fn field_value(value: &nvmlFieldValue_t) -> Result<FieldValue, Failure> {
    if let Some(failure) = Failure::of(Code(value.nvmlReturn)) {
        return Err(failure);
    }
    let union = value.value;
    // SAFETY: the driver filled the member that `valueType` names, and all members are plain numbers
    // within the eight bytes that were zeroed before the call.
    let read = unsafe {
        match value.valueType {
            1 => FieldValue::Unsigned(u64::from(union.uiVal)),
            2 | 3 => FieldValue::Unsigned(union.ullVal),
            4 => FieldValue::Signed(union.sllVal),
            5 => FieldValue::Signed(i64::from(union.siVal)),
            6 => FieldValue::Unsigned(u64::from(union.usVal)),
            _ => return Err(Failure::Other(Code(999))),
        }
    };
    Ok(read)
}

/// Asks for the number first; processes that start in between make it too small, so there is slack.
pub(super) fn process_list(
    ask: impl Fn(*mut u32, *mut nvmlProcessInfo_t) -> Result<(), Failure>,
) -> Result<Vec<Running>, Failure> {
    let mut count = 0;
    match ask(&raw mut count, std::ptr::null_mut()) {
        Ok(()) => return Ok(Vec::new()),
        Err(Failure::Other(Code(7))) => {}
        Err(failure) => return Err(failure),
    }
    let room = usize::try_from(count).unwrap_or(0).saturating_add(8).min(PROCESSES_MAX);
    let empty = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: u64::MAX,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut list = vec![empty; room];
    let mut filled = u32::try_from(room).unwrap_or(0);
    ask(&raw mut filled, list.as_mut_ptr())?;
    list.truncate(usize::try_from(filled).unwrap_or(0));
    let running =
        |p: &nvmlProcessInfo_t| Running { pid: p.pid, used_memory_bytes: known(p.usedGpuMemory) };
    Ok(list.iter().map(running).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_end_is_read_to_the_end_of_its_buffer() {
        assert_eq!(shown(&[65, 66, 0, 67]), "AB");
        assert_eq!(shown(&[65; 4]), "AAAA");
    }
}
