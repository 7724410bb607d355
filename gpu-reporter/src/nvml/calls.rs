//! One safe method per NVML function. Buffers and version words end here.
#![expect(unsafe_code, reason = "the driver is a C library")]

use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlFieldValue_t, nvmlMarginTemperature_t, nvmlMemory_t, nvmlMemory_v2_t,
    nvmlPciInfo_t, nvmlTemperature_t, nvmlUtilization_t, nvmlValue_t,
};

use super::{
    Code, Failure, Function, Handle, Session,
    buffers::{TEXT_BYTES, buffer, field_value, process_list, shown},
    raw::EventSet,
    values::{Event, FieldValue, MemoryInfo, Remapped, Running, known},
};

/// NVML's version word: size of the struct, version from bit 24.
const fn version_word<T>(version: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "structs of nvml.h are far below 16 MiB")]
    let size = size_of::<T>() as u32;
    size | version << 24
}

/// Calls `$function` through the watchdog; a missing symbol is an unsupported one.
macro_rules! call {
    ($session:expr, $gpu:expr, $function:ident($($arg:expr),*)) => {{
        let session: &Session = $session;
        match session.symbols()?.$function.as_ref() {
            Ok(symbol) => session.watched(Function::$function, $gpu, || {
                // SAFETY: the signature is nvml.h's, handles come from this library, and every pointer
                // is to a live local of the right type for the length of the call.
                unsafe { symbol($($arg),*) }
            }),
            Err(_) => Err(Failure::Unsupported(Code::MISSING_SYMBOL)),
        }
    }};
}

/// Methods that ask one GPU for one number.
macro_rules! numbers {
    ($($(#[$doc:meta])* $method:ident: $ty:ty = $function:ident($($arg:expr),*);)*) => {
        impl Session { $(
            $(#[$doc])*
            pub(crate) fn $method(&self, device: Handle) -> Result<$ty, Failure> {
                let mut value: $ty = 0;
                call!(self, Some(device.gpu), $function(device.raw, $($arg,)* &raw mut value))?;
                Ok(value)
            }
        )* }
    };
}

numbers! {
    architecture: u32 = nvmlDeviceGetArchitecture();
    temperature_old: u32 = nvmlDeviceGetTemperature(0);
    shutdown_threshold: u32 = nvmlDeviceGetTemperatureThreshold(0);
    slowdown_threshold: u32 = nvmlDeviceGetTemperatureThreshold(1);
    power_mw: u32 = nvmlDeviceGetPowerUsage();
    power_limit_mw: u32 = nvmlDeviceGetEnforcedPowerLimit();
    energy_mj: u64 = nvmlDeviceGetTotalEnergyConsumption();
    sm_clock: u32 = nvmlDeviceGetClockInfo(1);
    memory_clock: u32 = nvmlDeviceGetClockInfo(2);
    sm_clock_max: u32 = nvmlDeviceGetMaxClockInfo(1);
    memory_clock_max: u32 = nvmlDeviceGetMaxClockInfo(2);
    event_reasons: u64 = nvmlDeviceGetCurrentClocksEventReasons();
    event_reasons_old: u64 = nvmlDeviceGetCurrentClocksThrottleReasons();
    performance_state: u32 = nvmlDeviceGetPerformanceState();
    volatile_corrected: u64 = nvmlDeviceGetTotalEccErrors(0, 0);
    volatile_uncorrected: u64 = nvmlDeviceGetTotalEccErrors(1, 0);
    aggregate_corrected: u64 = nvmlDeviceGetTotalEccErrors(0, 1);
    aggregate_uncorrected: u64 = nvmlDeviceGetTotalEccErrors(1, 1);
    /// KiB/s over 20 ms, in which the call blocks.
    pcie_tx_kib_s: u32 = nvmlDeviceGetPcieThroughput(0);
    /// KiB/s over 20 ms, in which the call blocks.
    pcie_rx_kib_s: u32 = nvmlDeviceGetPcieThroughput(1);
    pcie_replay: u32 = nvmlDeviceGetPcieReplayCounter();
    pcie_generation: u32 = nvmlDeviceGetCurrPcieLinkGeneration();
    pcie_generation_max: u32 = nvmlDeviceGetMaxPcieLinkGeneration();
    pcie_width: u32 = nvmlDeviceGetCurrPcieLinkWidth();
    pcie_width_max: u32 = nvmlDeviceGetMaxPcieLinkWidth();
    mig_count_max: u32 = nvmlDeviceGetMaxMigDeviceCount();
    gpu_instance_id: u32 = nvmlDeviceGetGpuInstanceId();
    compute_instance_id: u32 = nvmlDeviceGetComputeInstanceId();
    event_types: u64 = nvmlDeviceGetSupportedEventTypes();
}

impl Session {
    pub(crate) fn driver_version(&self) -> Result<String, Failure> {
        self.wrapped(Function::nvmlSystemGetDriverVersion, |nvml| nvml.sys_driver_version())
    }

    pub(crate) fn nvml_version(&self) -> Result<String, Failure> {
        self.wrapped(Function::nvmlSystemGetNVMLVersion, |nvml| nvml.sys_nvml_version())
    }

    pub(crate) fn cuda_version(&self) -> Result<i32, Failure> {
        self.wrapped(Function::nvmlSystemGetCudaDriverVersion_v2, |n| n.sys_cuda_driver_version())
    }

    pub(crate) fn count(&self) -> Result<u32, Failure> {
        self.wrapped(Function::nvmlDeviceGetCount_v2, |nvml| nvml.device_count())
    }

    /// Attaches the GPU: seconds without persistence mode, for ever on a broken GPU.
    pub(crate) fn handle(&self, gpu: u32) -> Result<Handle, Failure> {
        let mut raw = std::ptr::null_mut();
        call!(self, Some(gpu), nvmlDeviceGetHandleByIndex_v2(gpu, &raw mut raw))?;
        Ok(Handle { raw, gpu })
    }

    pub(crate) fn uuid(&self, device: Handle) -> Result<String, Failure> {
        let mut text = [0; TEXT_BYTES];
        let (place, len) = buffer(&mut text);
        call!(self, Some(device.gpu), nvmlDeviceGetUUID(device.raw, place, len))?;
        Ok(shown(&text))
    }

    pub(crate) fn name(&self, device: Handle) -> Result<String, Failure> {
        let mut text = [0; TEXT_BYTES];
        let (place, len) = buffer(&mut text);
        call!(self, Some(device.gpu), nvmlDeviceGetName(device.raw, place, len))?;
        Ok(shown(&text))
    }

    pub(crate) fn pci_bus_id(&self, device: Handle) -> Result<String, Failure> {
        let mut info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        call!(self, Some(device.gpu), nvmlDeviceGetPciInfo_v3(device.raw, &raw mut info))?;
        Ok(shown(&info.busId))
    }

    /// SM and memory controller, percent of the driver's window.
    pub(crate) fn utilization(&self, device: Handle) -> Result<(u32, u32), Failure> {
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        call!(self, Some(device.gpu), nvmlDeviceGetUtilizationRates(device.raw, &raw mut rates))?;
        Ok((rates.gpu, rates.memory))
    }

    pub(crate) fn encoder(&self, device: Handle) -> Result<u32, Failure> {
        let (mut value, mut period_us) = (0, 0);
        let (value_at, period_at) = (&raw mut value, &raw mut period_us);
        let gpu = Some(device.gpu);
        call!(self, gpu, nvmlDeviceGetEncoderUtilization(device.raw, value_at, period_at))?;
        Ok(value)
    }

    pub(crate) fn decoder(&self, device: Handle) -> Result<u32, Failure> {
        let (mut value, mut period_us) = (0, 0);
        let (value_at, period_at) = (&raw mut value, &raw mut period_us);
        let gpu = Some(device.gpu);
        call!(self, gpu, nvmlDeviceGetDecoderUtilization(device.raw, value_at, period_at))?;
        Ok(value)
    }

    pub(crate) fn memory(&self, device: Handle) -> Result<MemoryInfo, Failure> {
        let version = version_word::<nvmlMemory_v2_t>(2);
        let mut info = nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        call!(self, Some(device.gpu), nvmlDeviceGetMemoryInfo_v2(device.raw, &raw mut info))?;
        Ok(MemoryInfo {
            total_bytes: known(info.total),
            free_bytes: known(info.free),
            used_bytes: known(info.used),
            reserved_bytes: known(info.reserved),
        })
    }

    pub(crate) fn memory_old(&self, device: Handle) -> Result<MemoryInfo, Failure> {
        let mut info = nvmlMemory_t { total: 0, free: 0, used: 0 };
        call!(self, Some(device.gpu), nvmlDeviceGetMemoryInfo(device.raw, &raw mut info))?;
        Ok(MemoryInfo {
            total_bytes: known(info.total),
            free_bytes: known(info.free),
            used_bytes: known(info.used),
            reserved_bytes: None,
        })
    }

    pub(crate) fn temperature(&self, device: Handle) -> Result<u32, Failure> {
        let version = version_word::<nvmlTemperature_t>(1);
        let mut info = nvmlTemperature_t { version, sensorType: 0, temperature: 0 };
        call!(self, Some(device.gpu), nvmlDeviceGetTemperatureV(device.raw, &raw mut info))?;
        u32::try_from(info.temperature).map_err(|_| Failure::Other(Code(999)))
    }

    /// Degrees until the highest temperature of normal work.
    pub(crate) fn margin_c(&self, device: Handle) -> Result<i32, Failure> {
        let version = version_word::<nvmlMarginTemperature_t>(1);
        let mut info = nvmlMarginTemperature_t { version, marginTemperature: 0 };
        call!(self, Some(device.gpu), nvmlDeviceGetMarginTemperature(device.raw, &raw mut info))?;
        Ok(info.marginTemperature)
    }

    pub(crate) fn ecc_enabled(&self, device: Handle) -> Result<bool, Failure> {
        let (mut current, mut pending) = (0, 0);
        let (current_at, pending_at) = (&raw mut current, &raw mut pending);
        call!(self, Some(device.gpu), nvmlDeviceGetEccMode(device.raw, current_at, pending_at))?;
        Ok(current != 0)
    }

    pub(crate) fn remapped(&self, device: Handle) -> Result<Remapped, Failure> {
        let (mut cor, mut unc, mut pending, mut failure) = (0, 0, 0, 0);
        call!(
            self,
            Some(device.gpu),
            nvmlDeviceGetRemappedRows(
                device.raw,
                &raw mut cor,
                &raw mut unc,
                &raw mut pending,
                &raw mut failure
            )
        )?;
        let (pending, failure) = (pending != 0, failure != 0);
        Ok(Remapped { corrected: cor, uncorrected: unc, pending, failure })
    }

    /// Pages retired for either cause; only GPUs before Ampere have them.
    pub(crate) fn retired_pages(&self, device: Handle) -> Result<u32, Failure> {
        let mut total = 0_u32;
        for cause in [0, 1] {
            let mut count = 0;
            let (count_at, nowhere) = (&raw mut count, std::ptr::null_mut());
            let gpu = Some(device.gpu);
            let asked =
                call!(self, gpu, nvmlDeviceGetRetiredPages(device.raw, cause, count_at, nowhere));
            match asked {
                // With no room the driver only counts.
                Ok(()) | Err(Failure::Other(Code(7))) => total = total.saturating_add(count),
                Err(failure) => return Err(failure),
            }
        }
        Ok(total)
    }

    /// Whether the GPU is cut into instances.
    pub(crate) fn mig_enabled(&self, device: Handle) -> Result<bool, Failure> {
        let (mut current, mut pending) = (0, 0);
        let (current_at, pending_at) = (&raw mut current, &raw mut pending);
        call!(self, Some(device.gpu), nvmlDeviceGetMigMode(device.raw, current_at, pending_at))?;
        Ok(current != 0)
    }

    /// The instance at `place`; `NOT_FOUND` (6) is a hole.
    pub(crate) fn mig_instance(&self, device: Handle, place: u32) -> Result<Handle, Failure> {
        let mut raw = std::ptr::null_mut();
        let gpu = Some(device.gpu);
        call!(self, gpu, nvmlDeviceGetMigDeviceHandleByIndex(device.raw, place, &raw mut raw))?;
        Ok(Handle { raw, gpu: device.gpu })
    }

    pub(crate) fn processes(&self, device: Handle) -> Result<Vec<Running>, Failure> {
        process_list(|count, places| {
            let gpu = Some(device.gpu);
            call!(self, gpu, nvmlDeviceGetComputeRunningProcesses_v3(device.raw, count, places))
        })
    }

    pub(crate) fn processes_old(&self, device: Handle) -> Result<Vec<Running>, Failure> {
        process_list(|count, places| {
            let gpu = Some(device.gpu);
            call!(self, gpu, nvmlDeviceGetComputeRunningProcesses_v2(device.raw, count, places))
        })
    }

    /// Several fields in one call; results by position, since drivers renumber ids above 250.
    pub(crate) fn fields<const N: usize>(
        &self,
        device: Handle,
        ids: [u32; N],
    ) -> Result<[Result<FieldValue, Failure>; N], Failure> {
        let mut values = ids.map(|id| nvmlFieldValue_t {
            fieldId: id,
            scopeId: 0,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: 0,
            value: nvmlValue_t { ullVal: 0 },
        });
        let count = i32::try_from(N).unwrap_or(0);
        let gpu = Some(device.gpu);
        call!(self, gpu, nvmlDeviceGetFieldValues(device.raw, count, values.as_mut_ptr()))?;
        Ok(values.map(|value| field_value(&value)))
    }

    pub(crate) fn create_event_set(&self) -> Result<EventSet, Failure> {
        let mut set = std::ptr::null_mut();
        call!(self, None, nvmlEventSetCreate(&raw mut set))?;
        Ok(EventSet(set))
    }

    /// The set stays valid when this GPU refuses.
    pub(crate) fn register(
        &self,
        device: Handle,
        types: u64,
        set: &EventSet,
    ) -> Result<(), Failure> {
        call!(self, Some(device.gpu), nvmlDeviceRegisterEvents(device.raw, types, set.0))
    }

    /// Waits for one event of `registered` GPUs; `TIMEOUT` (10) when there was none.
    pub(crate) fn wait(
        &self,
        set: &EventSet,
        registered: &[Handle],
        timeout_ms: u32,
    ) -> Result<Event, Failure> {
        let mut data = nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        };
        call!(self, None, nvmlEventSetWait_v2(set.0, &raw mut data, timeout_ms))?;
        let gpu = registered.iter().find(|handle| handle.raw == data.device).map(|h| h.gpu);
        Ok(Event { gpu, kind: data.eventType, data: data.eventData })
    }

    pub(crate) fn free_event_set(&self, set: EventSet) -> Result<(), Failure> {
        call!(self, None, nvmlEventSetFree(set.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_words_are_those_of_the_header() {
        assert_eq!(version_word::<nvmlMemory_v2_t>(2), 0x0200_0028);
        assert_eq!(version_word::<nvmlTemperature_t>(1), 0x0100_000c);
        assert_eq!(version_word::<nvmlMarginTemperature_t>(1), 0x0100_0008);
    }
}
