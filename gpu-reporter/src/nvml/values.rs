//! What driver calls give. Sentinels end here: NVML's "not available" is `None`.

/// `u64::MAX` and `i64::MAX` are NVML's "not available".
pub(super) fn known(value: u64) -> Option<u64> {
    (value < u64::MAX >> 1).then_some(value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remapped {
    pub corrected: u32,
    pub uncorrected: u32,
    pub pending: bool,
    pub failure: bool,
}

/// A compute process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub pid: u32,
    pub used_memory_bytes: Option<u64>,
}

/// One answer of `nvmlDeviceGetFieldValues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue {
    Unsigned(u64),
    Signed(i64),
}

impl FieldValue {
    #[must_use]
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => known(value),
            Self::Signed(value) => u64::try_from(value).ok(),
        }
    }

    #[must_use]
    pub fn signed(self) -> Option<i64> {
        match self {
            // T.Limit values are negative numbers that some drivers put into the unsigned place.
            Self::Unsigned(value) => match u32::try_from(value) {
                Ok(small) => Some(i64::from(small.cast_signed())),
                Err(_) => i64::try_from(value).ok(),
            },
            Self::Signed(value) => Some(value),
        }
    }
}

/// What the driver reported of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Index of the GPU, if it is one that was registered.
    pub gpu: Option<u32>,
    /// nvml.h's event bit; 8 is an Xid.
    pub kind: u64,
    pub data: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_are_unknown_not_large() {
        assert_eq!(known(u64::MAX), None);
        assert_eq!(known(u64::MAX >> 1), None);
        assert_eq!(known((u64::MAX >> 1) - 1), Some((u64::MAX >> 1) - 1));
        assert_eq!(known(0), Some(0));
        assert_eq!(FieldValue::Unsigned(u64::MAX).unsigned(), None);
        assert_eq!(FieldValue::Signed(-1).unsigned(), None);
    }

    #[test]
    fn a_negative_number_in_an_unsigned_place_stays_negative() {
        assert_eq!(FieldValue::Unsigned(u64::from(u32::MAX - 1)).signed(), Some(-2));
        assert_eq!(FieldValue::Signed(-5).signed(), Some(-5));
    }
}
