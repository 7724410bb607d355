//! Opening and closing the library, and the one way every call goes.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{
    ffi::{OsStr, c_int},
    fmt,
    mem::ManuallyDrop,
    sync::Arc,
    time::Duration,
};

use nvml_wrapper::{Nvml, error::NvmlError};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlEventSet_t, nvmlReturn_t};

use super::{Code, Failure, Function, code::wrapper_code};
use crate::watch::{Costs, Slot};

unsafe extern "C" {
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process at once, without destructors.
///
/// The driver library registers exit handlers, and `nvmlShutdown` on a hung driver never returns, so a
/// daemon that must be gone within two seconds may run neither.
pub fn leave_process(status: i32) -> ! {
    _exit(status)
}

/// Where the library is looked for, in this order, when no path is given.
const PLACES: [&str; 6] = [
    "libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "libnvidia-ml.so",
];

/// The library could not be opened or initialised.
#[derive(Debug)]
pub struct OpenError {
    pub code: Code,
    text: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OpenError {}

/// The initialised library. Closed when the last thread lets go of it.
pub struct Library {
    nvml: ManuallyDrop<Nvml>,
}

impl Library {
    /// Finds, loads and initialises the library; the caller's thread is watched meanwhile.
    ///
    /// # Errors
    /// The driver's answer from the first place that has a library, else that there is none.
    pub fn open(path: Option<&str>, slot: &Slot) -> Result<Self, OpenError> {
        let mut first: Option<NvmlError> = None;
        let places: &[&str] = &path.map_or_else(|| PLACES.to_vec(), |path| vec![path]);
        for place in places {
            slot.enter(Function::nvmlInit_v2, None);
            let opened = Nvml::builder().lib_path(OsStr::new(place)).init();
            slot.leave();
            match opened {
                Ok(nvml) => return Ok(Self { nvml: ManuallyDrop::new(nvml) }),
                Err(error @ NvmlError::LibloadingError(_)) => {
                    first.get_or_insert(error);
                }
                Err(error) => {
                    let code = wrapper_code(&error);
                    return Err(OpenError { code, text: format!("nvmlInit_v2: {code}") });
                }
            }
        }
        let text = match first {
            Some(NvmlError::LibloadingError(cause)) => format!("no driver library: {cause}"),
            _ => "no driver library".into(),
        };
        Err(OpenError { code: Code::NO_LIBRARY, text })
    }

    pub(super) fn nvml(&self) -> &Nvml {
        &self.nvml
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // The wrapper's own drop panics when this symbol is missing; then the library stays loaded.
        if self.nvml.lib().nvmlShutdown.is_ok() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.nvml) };
        }
    }
}

/// A GPU or MIG instance as the driver names it. Void after the library was opened again.
#[derive(Clone, Copy)]
pub struct Handle {
    pub(super) raw: nvmlDevice_t,
    /// Index of the GPU, so that the watchdog can tell which GPU a call hangs on.
    pub(super) gpu: u32,
}

impl Handle {
    #[must_use]
    pub const fn gpu(self) -> u32 {
        self.gpu
    }
}

/// One thread's way into the library.
pub struct Session {
    library: Option<Arc<Library>>,
    slot: Arc<Slot>,
    costs: Arc<Costs>,
    slow: Duration,
}

impl Session {
    #[must_use]
    pub const fn new(
        library: Arc<Library>,
        slot: Arc<Slot>,
        costs: Arc<Costs>,
        slow: Duration,
    ) -> Self {
        Self { library: Some(library), slot, costs, slow }
    }

    pub(super) fn library(&self) -> Result<&Library, Failure> {
        self.library.as_deref().ok_or(Failure::Stale(Code(1)))
    }

    pub(super) fn symbols(&self) -> Result<&NvmlLib, Failure> {
        Ok(self.library()?.nvml().lib())
    }

    /// Runs one driver call in sight of the watchdog.
    pub(super) fn watched(
        &self,
        function: Function,
        gpu: Option<u32>,
        call: impl FnOnce() -> nvmlReturn_t,
    ) -> Result<(), Failure> {
        let start = self.slot.enter(function, gpu);
        let failure = Failure::of(Code(call()));
        let took = start.elapsed();
        self.slot.leave();
        self.costs.note(function, took, failure.is_none(), self.slow);
        if self.slot.is_abandoned() {
            return Err(Failure::Abandoned);
        }
        failure.map_or(Ok(()), Err)
    }

    /// The same for calls that the wrapper does well.
    pub(super) fn wrapped<T>(
        &self,
        function: Function,
        call: impl FnOnce(&Nvml) -> Result<T, NvmlError>,
    ) -> Result<T, Failure> {
        let nvml = self.library()?.nvml();
        let mut value = None;
        self.watched(function, None, || match call(nvml) {
            Ok(found) => {
                value = Some(found);
                0
            }
            Err(error) => wrapper_code(&error).0,
        })?;
        value.ok_or(Failure::Other(Code(999)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever lets go last also shuts down, and that call can hang as well.
        if let Some(library) = self.library.take().and_then(Arc::into_inner) {
            self.slot.enter(Function::nvmlShutdown, None);
            drop(library);
            self.slot.leave();
        }
    }
}

/// An event set; freed with [`Session::free_event_set`].
pub(crate) struct EventSet(pub(super) nvmlEventSet_t);
