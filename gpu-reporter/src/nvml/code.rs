//! What a driver call may answer, sorted by what the reporter does about it.

use std::fmt;

use nvml_wrapper::error::NvmlError;

/// An NVML return code by number, so that codes newer than any binding stay what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

impl Code {
    /// Not of NVML: the loaded library has no such symbol.
    pub const MISSING_SYMBOL: Self = Self(u32::MAX);
    /// Not of NVML: the library itself cannot be loaded.
    pub const NO_LIBRARY: Self = Self(u32::MAX - 1);

    const fn name(self) -> &'static str {
        match self.0 {
            0 => "SUCCESS",
            1 => "UNINITIALIZED",
            2 => "INVALID_ARGUMENT",
            3 => "NOT_SUPPORTED",
            4 => "NO_PERMISSION",
            6 => "NOT_FOUND",
            7 => "INSUFFICIENT_SIZE",
            9 => "DRIVER_NOT_LOADED",
            10 => "TIMEOUT",
            12 => "LIBRARY_NOT_FOUND",
            13 => "FUNCTION_NOT_FOUND",
            14 => "CORRUPTED_INFOROM",
            15 => "GPU_IS_LOST",
            16 => "RESET_REQUIRED",
            17 => "OPERATING_SYSTEM",
            18 => "LIB_RM_VERSION_MISMATCH",
            19 => "IN_USE",
            20 => "MEMORY",
            21 => "NO_DATA",
            23 => "INSUFFICIENT_RESOURCES",
            24 => "FREQ_NOT_SUPPORTED",
            25 => "ARGUMENT_VERSION_MISMATCH",
            26 => "DEPRECATED",
            27 => "NOT_READY",
            28 => "GPU_NOT_FOUND",
            29 => "INVALID_STATE",
            30 => "RESET_TYPE_NOT_SUPPORTED",
            999 => "UNKNOWN",
            _ => "code",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MISSING_SYMBOL => f.write_str("the library has no such function"),
            Self::NO_LIBRARY => f.write_str("the library cannot be loaded"),
            code => write!(f, "{} ({})", code.name(), code.0),
        }
    }
}

/// Why a call gave no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This GPU or driver does not have it: another symbol may, and zero it is not.
    Unsupported(Code),
    /// The GPU is off the bus or waits for a reset.
    Lost(Code),
    /// Handles are void: the library must be opened again.
    Stale(Code),
    /// No value this time.
    Other(Code),
    /// The call took so long that this thread was replaced; its results count no more.
    Abandoned,
}

impl Failure {
    /// Sorts a code; `None` is success.
    #[must_use]
    pub const fn of(code: Code) -> Option<Self> {
        Some(match code.0 {
            0 => return None,
            1 => Self::Stale(code),
            3 | 4 | 13 | 24 | 25 | 26 | 30 => Self::Unsupported(code),
            15 | 16 | 28 => Self::Lost(code),
            _ if code.0 == Code::MISSING_SYMBOL.0 => Self::Unsupported(code),
            _ => Self::Other(code),
        })
    }

    /// Sorts what the wrapper made of a code.
    #[must_use]
    pub fn of_wrapper(error: &NvmlError) -> Self {
        let code = wrapper_code(error);
        Self::of(code).unwrap_or(Self::Other(code))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(code) | Self::Lost(code) | Self::Stale(code) | Self::Other(code) => {
                code.fmt(f)
            }
            Self::Abandoned => f.write_str("the call took too long"),
        }
    }
}

/// The number behind a wrapper error.
pub(crate) fn wrapper_code(error: &NvmlError) -> Code {
    Code(match error {
        NvmlError::LibloadingError(_) => return Code::NO_LIBRARY,
        NvmlError::FailedToLoadSymbol(_) => return Code::MISSING_SYMBOL,
        NvmlError::UnexpectedVariant(code) => *code,
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::Timeout => 10,
        NvmlError::LibraryNotFound => 12,
        NvmlError::FunctionNotFound => 13,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::OperatingSystem => 17,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        NvmlError::InsufficientMemory => 20,
        NvmlError::NoData => 21,
        _ => 999,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_the_wrapper_does_not_know_keep_their_meaning() {
        let unknown = |n| Failure::of_wrapper(&NvmlError::UnexpectedVariant(n));
        assert_eq!(unknown(26), Failure::Unsupported(Code(26)));
        assert_eq!(unknown(25), Failure::Unsupported(Code(25)));
        assert_eq!(unknown(27), Failure::Other(Code(27)));
        assert_eq!(unknown(28), Failure::Lost(Code(28)));
        assert_eq!(unknown(12_345), Failure::Other(Code(12_345)));
    }

    #[test]
    fn success_is_no_failure() {
        assert_eq!(Failure::of(Code(0)), None);
    }

    #[test]
    fn a_code_is_shown_by_name_and_number() {
        assert_eq!(Code(15).to_string(), "GPU_IS_LOST (15)");
        assert_eq!(Code(77).to_string(), "code (77)");
    }
}
