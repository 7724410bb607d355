//! The scenario file: what the GPUs look like and how they misbehave.

use std::collections::BTreeMap;

use serde::Deserialize;

/// NVML return codes by number, as in nvml.h.
pub type Code = u32;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    pub driver: Driver,
    /// File with changing load, next to the scenario; see [`Load`].
    pub load_file: Option<String>,
    pub gpus: Vec<Gpu>,
    pub events: Vec<Event>,
}

/// What holds for the library as a whole.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Driver {
    /// What `nvmlInit_v2` answers: 9 driver absent, 18 library mismatch.
    pub init_rc: Code,
    pub version: String,
    pub nvml_version: String,
    pub cuda: i32,
    /// A change makes every handle answer UNINITIALIZED until the client initialises again.
    pub generation: u64,
    /// Functions that do not return while they stand here, also `nvmlInit_v2` and `nvmlShutdown`.
    pub hang: Vec<String>,
    /// Forced code of any function, on every GPU.
    pub fail: BTreeMap<String, Code>,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            init_rc: 0,
            version: "580.95.05".into(),
            nvml_version: "13.580.95.05".into(),
            cuda: 13_000,
            generation: 0,
            hang: Vec::new(),
            fail: BTreeMap::new(),
        }
    }
}

/// One GPU; everything but `uuid` has a default, that of a healthy idle A100.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    pub uuid: String,
    pub name: String,
    pub serial: String,
    /// Empty: made from the position in the list.
    pub pci_bus_id: String,
    /// 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell, or a number that no client knows.
    pub architecture: u32,
    pub memory_total_mib: u64,
    /// Includes the reserved part, as NVML's figure does.
    pub memory_used_mib: u64,
    pub memory_reserved_mib: u64,
    /// Percent of time with a kernel running; also values over 100, which a client should refuse.
    pub utilization: u32,
    pub memory_utilization: u32,
    pub encoder_utilization: u32,
    pub decoder_utilization: u32,
    pub temperature_c: i32,
    pub memory_temperature_c: u32,
    pub slowdown_c: u32,
    pub shutdown_c: u32,
    pub power_w: u32,
    pub power_limit_w: u32,
    pub sm_clock_mhz: u32,
    pub sm_clock_max_mhz: u32,
    pub memory_clock_mhz: u32,
    pub memory_clock_max_mhz: u32,
    pub performance_state: u32,
    /// Clock event bits: 0x4 power cap, 0x8 slowdown, 0x20 and 0x40 thermal, 0x80 power brake.
    pub throttle_reasons: u64,
    pub ecc: Ecc,
    pub remap: Remap,
    pub retired_pages: u32,
    pub pcie: Pcie,
    /// Number of MIG instances; 0 is MIG off.
    pub mig: u32,
    /// Field 230.
    pub recovery_action: u32,
    /// Event bits that can be registered; 0 makes `nvmlDeviceRegisterEvents` refuse.
    pub event_types: u64,
    /// Every call answers GPU_IS_LOST.
    pub lost: bool,
    /// No call returns, until this is false again.
    pub hang: bool,
    /// These functions answer NOT_SUPPORTED; `field:230` names a field.
    pub unsupported: Vec<String>,
    /// These functions answer this code; `field:230` names a field.
    pub fail: BTreeMap<String, Code>,
    /// These functions take this long, `*` all of them.
    pub delay_ms: BTreeMap<String, u64>,
    pub processes: Vec<Process>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            uuid: String::new(),
            name: "NVIDIA A100-SXM4-80GB".into(),
            serial: "1650522000001".into(),
            pci_bus_id: String::new(),
            architecture: 7,
            memory_total_mib: 81_920,
            memory_used_mib: 1_024,
            memory_reserved_mib: 640,
            utilization: 0,
            memory_utilization: 0,
            encoder_utilization: 0,
            decoder_utilization: 0,
            temperature_c: 35,
            memory_temperature_c: 40,
            slowdown_c: 90,
            shutdown_c: 95,
            power_w: 60,
            power_limit_w: 400,
            sm_clock_mhz: 1_410,
            sm_clock_max_mhz: 1_410,
            memory_clock_mhz: 1_593,
            memory_clock_max_mhz: 1_593,
            performance_state: 0,
            throttle_reasons: 0,
            ecc: Ecc::default(),
            remap: Remap::default(),
            retired_pages: 0,
            pcie: Pcie::default(),
            mig: 0,
            recovery_action: 0,
            event_types: 0x1f | 0x4000 | 0x8000,
            lost: false,
            hang: false,
            unsupported: Vec::new(),
            fail: BTreeMap::new(),
            delay_ms: BTreeMap::new(),
            processes: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    pub enabled: bool,
    pub volatile_corrected: u64,
    pub volatile_uncorrected: u64,
    pub aggregate_corrected: u64,
    pub aggregate_uncorrected: u64,
}

impl Default for Ecc {
    fn default() -> Self {
        Self {
            enabled: true,
            volatile_corrected: 0,
            volatile_uncorrected: 0,
            aggregate_corrected: 0,
            aggregate_uncorrected: 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Remap {
    pub corrected: u32,
    pub uncorrected: u32,
    pub pending: bool,
    pub failure: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    pub tx_mib_s: u64,
    pub rx_mib_s: u64,
    pub generation: u32,
    pub generation_max: u32,
    pub width: u32,
    pub width_max: u32,
    pub replay: u32,
}

impl Default for Pcie {
    fn default() -> Self {
        Self {
            tx_mib_s: 0,
            rx_mib_s: 0,
            generation: 4,
            generation_max: 4,
            width: 16,
            width_max: 16,
            replay: 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    pub pid: u32,
    /// Absent: the driver does not know.
    pub memory_mib: Option<u64>,
}

/// One Xid, or a storm of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Since the process that loaded the library started.
    #[serde(default)]
    pub at_ms: u64,
    /// Position in `gpus`.
    pub gpu: usize,
    pub xid: u64,
    /// How many times, one after the other.
    #[serde(default = "once")]
    pub repeat: u64,
    #[serde(default = "none")]
    pub gpu_instance: u32,
    #[serde(default = "none")]
    pub compute_instance: u32,
}

const fn once() -> u64 {
    1
}

/// NVML's mark for "not a MIG event".
const fn none() -> u32 {
    u32::MAX
}

/// The overlay that a model server writes: load by position of the GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    pub gpus: BTreeMap<usize, GpuLoad>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuLoad {
    pub utilization: Option<u32>,
    pub memory_utilization: Option<u32>,
    pub memory_used_mib: Option<u64>,
    pub temperature_c: Option<i32>,
    pub power_w: Option<u32>,
    pub sm_clock_mhz: Option<u32>,
    pub throttle_reasons: Option<u64>,
}

impl GpuLoad {
    /// Writes what is present over `gpu`.
    pub fn apply(&self, gpu: &mut Gpu) {
        fn set<T: Copy>(value: Option<T>, place: &mut T) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(self.utilization, &mut gpu.utilization);
        set(self.memory_utilization, &mut gpu.memory_utilization);
        set(self.memory_used_mib, &mut gpu.memory_used_mib);
        set(self.temperature_c, &mut gpu.temperature_c);
        set(self.power_w, &mut gpu.power_w);
        set(self.sm_clock_mhz, &mut gpu.sm_clock_mhz);
        set(self.throttle_reasons, &mut gpu.throttle_reasons);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_alone_is_a_healthy_gpu() {
        let scenario: Scenario = serde_json::from_str(r#"{"gpus":[{"uuid":"GPU-a"}]}"#).unwrap();
        let gpu = &scenario.gpus[0];
        assert_eq!((gpu.memory_total_mib, gpu.lost, gpu.ecc.enabled), (81_920, false, true));
        assert_eq!(scenario.driver.init_rc, 0);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        assert!(
            serde_json::from_str::<Scenario>(r#"{"gpus":[{"uuid":"a","utilisation":1}]}"#).is_err()
        );
    }

    #[test]
    fn load_overlays_only_what_it_names() {
        let load: Load = serde_json::from_str(r#"{"gpus":{"0":{"utilization":83}}}"#).unwrap();
        let mut gpu = Gpu { temperature_c: 50, ..Gpu::default() };
        load.gpus[&0].apply(&mut gpu);
        assert_eq!((gpu.utilization, gpu.temperature_c), (83, 50));
    }
}
