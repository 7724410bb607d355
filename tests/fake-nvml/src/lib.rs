//! A libnvidia-ml.so without a GPU, driven by a scenario file.
//!
//! Decides what each NVML call answers: a pure function of the scenario text, the load overlay and the
//! milliseconds since the process started, apart from two memories, which events were delivered and
//! which GPUs the client saw when it initialised. Struct layouts are those of `nvml-wrapper-sys`, so a
//! client that works here has the right layouts; version words are checked for the same reason.
//!
//! `README.md` documents the scenario format. The file is named by `TIDEGATE_FAKE_NVML` and read again
//! when it changes, so a test breaks a GPU of a running daemon by writing a file.
//!
//! No export unwinds into the client: an `extern "C"` function aborts on a panic, and nothing here
//! panics on any scenario; poisoned locks are entered anyway.

pub mod scenario;
mod state;

mod exports {
    //! The C symbols, and the only unsafe code.
    #![expect(unsafe_code, reason = "a C library is made of raw pointers")]
    #![expect(
        clippy::missing_safety_doc,
        reason = "the contract is nvml.h's: valid or null pointers"
    )]

    pub mod device;
    pub mod events;
    pub mod fields;
    pub mod health;
    pub mod mig;
    pub mod system;
    mod write;
}

pub use exports::{device, events, fields, health, mig, system};
