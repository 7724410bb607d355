//! The NVML functions that the reporter calls, as numbers that fit an atomic.

macro_rules! functions {
    ($($name:ident)*) => {
        /// One NVML function; the name is nvml.h's.
        #[expect(non_camel_case_types, reason = "names of nvml.h, so that a search finds them")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Function { $($name),* }

        impl Function {
            /// In declaration order; `ALL[f.place()] == f`.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

functions! {
    nvmlInit_v2
    nvmlShutdown
    nvmlSystemGetDriverVersion
    nvmlSystemGetNVMLVersion
    nvmlSystemGetCudaDriverVersion_v2
    nvmlDeviceGetCount_v2
    nvmlDeviceGetHandleByIndex_v2
    nvmlDeviceGetUUID
    nvmlDeviceGetName
    nvmlDeviceGetPciInfo_v3
    nvmlDeviceGetArchitecture
    nvmlDeviceGetUtilizationRates
    nvmlDeviceGetEncoderUtilization
    nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetMemoryInfo_v2
    nvmlDeviceGetMemoryInfo
    nvmlDeviceGetTemperatureV
    nvmlDeviceGetTemperature
    nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetMarginTemperature
    nvmlDeviceGetPowerUsage
    nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetTotalEnergyConsumption
    nvmlDeviceGetClockInfo
    nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetPerformanceState
    nvmlDeviceGetFieldValues
    nvmlDeviceGetEccMode
    nvmlDeviceGetTotalEccErrors
    nvmlDeviceGetRemappedRows
    nvmlDeviceGetRetiredPages
    nvmlDeviceGetPcieThroughput
    nvmlDeviceGetPcieReplayCounter
    nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth
    nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetMigMode
    nvmlDeviceGetMaxMigDeviceCount
    nvmlDeviceGetMigDeviceHandleByIndex
    nvmlDeviceGetGpuInstanceId
    nvmlDeviceGetComputeInstanceId
    nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetComputeRunningProcesses_v2
    nvmlDeviceGetSupportedEventTypes
    nvmlDeviceRegisterEvents
    nvmlEventSetCreate
    nvmlEventSetWait_v2
    nvmlEventSetFree
}

impl Function {
    /// Position in [`Function::ALL`].
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_and_list_agree() {
        for (place, function) in Function::ALL.iter().enumerate() {
            assert_eq!(function.place(), place);
        }
    }
}
