//! The driver library: the only room with unsafe code.
//!
//! `nvml-wrapper` finds, loads and initialises the library and reads versions and count. Per-GPU calls
//! go over `nvml-wrapper-sys` directly, because the wrapper (0.13) calls symbols that CUDA 13 deprecates
//! for temperature and throttle reasons, turns codes 23–30 into an enum error, frees the whole event set
//! when one GPU refuses it, and drops the MIG ids of events. Every call passes [`Session::watched`],
//! which writes it down for the watchdog.

mod buffers;
mod calls;
mod code;
mod function;
mod raw;
mod values;

pub use code::{Code, Failure};
pub use function::Function;
pub(crate) use raw::EventSet;
pub use raw::{Handle, Library, OpenError, Session, leave_process};
pub use values::{Event, FieldValue, MemoryInfo, Remapped, Running};
