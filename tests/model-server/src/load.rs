//! The load of the GPUs for the simulated driver: a file in the form that its scenario names as
//! `load_file`, replaced whole by a rename, so that a reader never sees half of it.
//!
//! Utilisation is the mean share of busy slots. Real NVML says 100 % as soon as one kernel runs all
//! the time; the share is what a load-following figure would be, and it moves in the demo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::gpu::{Gauge, Gpu, Since};
use crate::profile::Profile;

const PERIOD: Duration = Duration::from_millis(100);
/// Weights of the model and the engine's own buffers.
const MEMORY_BASE_RATIO: f64 = 0.2;
const MEMORY_KV_RATIO: f64 = 0.7;
const IDLE_C: f64 = 35.0;
const FULL_LOAD_RISE_C: f64 = 40.0;
/// Share of the way to the target temperature that a period goes: 5 s to within 1/e.
const WARMING: f64 = 0.02;

/// One file and the GPUs in it.
pub(crate) struct LoadFile {
    path: PathBuf,
    gpus: Vec<(Arc<Gpu>, Since, f64)>,
    written: Value,
}

impl LoadFile {
    pub(crate) fn new(path: PathBuf, gpus: Vec<Arc<Gpu>>) -> Self {
        let gpus = gpus.into_iter().map(|gpu| (gpu, Since::default(), IDLE_C)).collect();
        Self { path, gpus, written: Value::Null }
    }

    /// Writes the file each period if it changed.
    pub(crate) async fn keep(mut self) {
        let mut ticks = tokio::time::interval(PERIOD);
        loop {
            ticks.tick().await;
            if let Err(error) = self.write() {
                tracing::warn!("{error:#}");
            }
        }
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let mut gpus = BTreeMap::new();
        for (gpu, since, warmth_c) in &mut self.gpus {
            let gauge = gpu.gauge(since);
            *warmth_c += WARMING * (IDLE_C + FULL_LOAD_RISE_C * gauge.busy_ratio - *warmth_c);
            gpus.insert(gpu.config.gpu_index.to_string(), entry(&gpu.profile, gauge, *warmth_c));
        }
        let page = json!({ "gpus": gpus });
        if page != self.written {
            replace(&self.path, &serde_json::to_vec(&page)?)?;
            self.written = page;
        }
        Ok(())
    }
}

fn entry(profile: &Profile, gauge: Gauge, warmth_c: f64) -> Value {
    let memory_ratio = MEMORY_BASE_RATIO + MEMORY_KV_RATIO * gauge.kv_ratio;
    let power_w =
        profile.power_idle_w + (profile.power_limit_w - profile.power_idle_w) * gauge.busy_ratio;
    let mut entry = json!({
        "utilization": (gauge.busy_ratio * 100.0).round() as u64,
        "memory_used_mib": (profile.memory_mib as f64 * memory_ratio) as u64,
        "memory_utilization": (gauge.busy_ratio * 60.0).round() as u64,
        "temperature_c": gauge.temperature_c.unwrap_or(warmth_c.round() as i64),
        "power_w": power_w.round() as u64,
    });
    // At full speed the scenario's own clock stands.
    if gauge.speed_factor < 1.0 {
        entry["sm_clock_mhz"] = json!((profile.sm_clock_max_mhz * gauge.speed_factor) as u64);
    }
    entry
}

fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let next = path.with_extension("next");
    std::fs::write(&next, bytes).with_context(|| format!("cannot write {}", next.display()))?;
    std::fs::rename(&next, path).with_context(|| format!("cannot replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_follows_slots_and_kv() {
        let profile = Profile::named("a100-80gb").unwrap();
        let gauge =
            Gauge { busy_ratio: 0.5, kv_ratio: 0.5, speed_factor: 1.0, temperature_c: None };
        let shown = entry(&profile, gauge, 55.4);
        // 60 + 340 / 2 = 230 W; 81,920 * (0.2 + 0.35) = 45,056 MiB.
        let expected = json!({"utilization": 50, "memory_used_mib": 45_056, "memory_utilization": 30,
            "temperature_c": 55, "power_w": 230});
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_throttled_gpu_shows_its_clock_and_ordered_heat() {
        let profile = Profile::named("a100-80gb").unwrap();
        let gauge =
            Gauge { busy_ratio: 0.0, kv_ratio: 0.0, speed_factor: 0.5, temperature_c: Some(91) };
        let shown = entry(&profile, gauge, 35.0);
        assert_eq!(
            (shown["sm_clock_mhz"].clone(), shown["temperature_c"].clone()),
            (json!(705), json!(91))
        );
    }
}
