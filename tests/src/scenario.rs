//! The script of a node's simulated driver: the file that the fake `libnvidia-ml.so` reads again
//! whenever it changes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Map, Value, json};

/// NVML's clock event reason "hardware thermal slowdown".
pub const HW_THERMAL_SLOWDOWN: u64 = 0x40;

/// The file, and what it says.
#[derive(Debug)]
pub struct Scenario {
    path: PathBuf,
    page: Value,
}

/// A GPU type as the driver names it: `(profile, name, memory in MiB, power limit in W, SM clock in MHz)`.
const TYPES: [(&str, &str, u64, u64, u64); 6] = [
    ("a100-80gb", "NVIDIA A100-SXM4-80GB", 81_920, 400, 1_410),
    ("h100-80gb", "NVIDIA H100 80GB HBM3", 81_559, 700, 1_980),
    ("a10-24gb", "NVIDIA A10", 23_028, 150, 1_695),
    ("l4-24gb", "NVIDIA L4", 23_034, 72, 2_040),
    ("v100-32gb", "Tesla V100-SXM2-32GB", 32_768, 300, 1_530),
    ("t4-16gb", "Tesla T4", 15_360, 70, 1_590),
];

/// UUID of GPU `index` of `node`, the same in every run.
#[must_use]
pub fn uuid(node: &str, index: usize) -> String {
    let hash = node
        .bytes()
        .fold(0xcbf2_9ce4_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("GPU-{hash:08x}-0000-4000-8000-{index:012x}")
}

impl Scenario {
    /// A healthy node with one GPU for each profile; their load comes from `load.json` beside the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(path: &Path, node: &str, profiles: &[String]) -> anyhow::Result<Self> {
        let gpus: Vec<Value> =
            profiles.iter().enumerate().map(|(i, profile)| gpu(node, i, profile)).collect();
        let driver = json!({"init_rc": 0, "version": "580.95.05", "nvml_version": "13.580.95.05",
            "cuda": 13000});
        let page = json!({"driver": driver, "load_file": "load.json", "gpus": gpus, "events": []});
        let scenario = Self { path: path.to_path_buf(), page };
        scenario.save()?;
        Ok(scenario)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a model server writes the load of this node's GPUs.
    #[must_use]
    pub fn load_file(&self) -> PathBuf {
        self.path.with_file_name("load.json")
    }

    /// Sets fields of one GPU.
    ///
    /// # Errors
    /// There is no such GPU, or the file cannot be written.
    pub fn set(&mut self, gpu: usize, fields: Value) -> anyhow::Result<()> {
        let found = self.page["gpus"].get_mut(gpu).and_then(Value::as_object_mut);
        let known = found.with_context(|| format!("the scenario has no GPU {gpu}"))?;
        let Value::Object(fields) = fields else { anyhow::bail!("{fields} is no object") };
        known.extend(fields);
        self.save()
    }

    /// Sets fields of the driver, such as `init_rc`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn driver(&mut self, fields: Map<String, Value>) -> anyhow::Result<()> {
        if let Some(driver) = self.page["driver"].as_object_mut() {
            driver.extend(fields);
        }
        self.save()
    }

    /// Raises an Xid event now: 79 is "fallen off the bus".
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn xid(&mut self, gpu: usize, code: u32) -> anyhow::Result<()> {
        if let Some(events) = self.page["events"].as_array_mut() {
            events.push(json!({"at_ms": 0, "gpu": gpu, "xid": code}));
        }
        self.save()
    }

    /// Every call on it says GPU_IS_LOST.
    ///
    /// # Errors
    /// There is no such GPU, or the file cannot be written.
    pub fn lost(&mut self, gpu: usize) -> anyhow::Result<()> {
        self.set(gpu, json!({"lost": true}))
    }

    /// No call on it returns.
    ///
    /// # Errors
    /// There is no such GPU, or the file cannot be written.
    pub fn hang(&mut self, gpu: usize) -> anyhow::Result<()> {
        self.set(gpu, json!({"hang": true}))
    }

    /// Too hot: the clock falls to `ratio` of its maximum for thermal reasons.
    ///
    /// # Errors
    /// There is no such GPU, or the file cannot be written.
    pub fn throttle(&mut self, gpu: usize, ratio: f64) -> anyhow::Result<()> {
        let max_mhz = self.page["gpus"][gpu]["sm_clock_max_mhz"].as_f64().unwrap_or(1_410.0);
        let fields = json!({"throttle_reasons": HW_THERMAL_SLOWDOWN, "temperature_c": 92,
            "sm_clock_mhz": (max_mhz * ratio) as u64});
        self.set(gpu, fields)
    }

    /// Ends what [`Self::lost`], [`Self::hang`] and [`Self::throttle`] began.
    ///
    /// # Errors
    /// There is no such GPU, or the file cannot be written.
    pub fn recover(&mut self, gpu: usize) -> anyhow::Result<()> {
        let max_mhz = self.page["gpus"][gpu]["sm_clock_max_mhz"].clone();
        let fields = json!({"lost": false, "hang": false, "throttle_reasons": 0,
            "temperature_c": 55, "sm_clock_mhz": max_mhz});
        self.set(gpu, fields)
    }

    fn save(&self) -> anyhow::Result<()> {
        replace(&self.path, &serde_json::to_vec_pretty(&self.page)?)
    }
}

fn gpu(node: &str, index: usize, profile: &str) -> Value {
    let known = TYPES.iter().find(|(name, ..)| *name == profile).unwrap_or(&TYPES[0]);
    let &(_, name, memory_mib, power_w, clock_mhz) = known;
    json!({"uuid": uuid(node, index), "name": name, "memory_total_mib": memory_mib,
        "memory_used_mib": memory_mib / 5, "utilization": 0, "temperature_c": 45,
        "slowdown_c": 90, "shutdown_c": 95, "power_w": power_w / 4, "power_limit_w": power_w,
        "sm_clock_mhz": clock_mhz, "sm_clock_max_mhz": clock_mhz, "throttle_reasons": 0})
}

/// Writes a file whole or not at all: beside it, then by a rename over it.
///
/// # Errors
/// The folder does not take files.
pub fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    fs::rename(&next, path).with_context(|| format!("cannot replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_and_taken_back() {
        let dir = std::env::temp_dir().join(format!("tidegate-scenario-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("scenario.json");
        let profiles = ["a100-80gb".to_owned(), "l4-24gb".to_owned()];
        let mut scenario = Scenario::write(&path, "node-a", &profiles).unwrap();
        scenario.throttle(1, 0.5).unwrap();
        scenario.xid(0, 79).unwrap();
        let read = || -> Value { serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() };
        assert_eq!(read()["gpus"][1]["sm_clock_mhz"], 1_020);
        assert_eq!(read()["events"], json!([{"at_ms": 0, "gpu": 0, "xid": 79}]));
        scenario.recover(1).unwrap();
        assert_eq!(read()["gpus"][1]["sm_clock_mhz"], 2_040);
        assert!(scenario.lost(2).is_err());
        assert_ne!(uuid("node-a", 0), uuid("node-b", 0));
    }
}
