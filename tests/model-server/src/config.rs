//! The configuration file: which GPUs this process simulates, and where each listens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::profile::Profile;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) seed: u64,
    /// Where the load of the GPUs is written for the simulated driver; a GPU may have its own.
    #[serde(default)]
    pub(crate) load_file: Option<PathBuf>,
    /// Control and ledger of all GPUs, also of those that refuse or hang.
    #[serde(default)]
    pub(crate) control_listen: Option<SocketAddr>,
    pub(crate) gpus: Vec<GpuConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuConfig {
    pub(crate) listen: SocketAddr,
    #[serde(default)]
    pub(crate) gpu_index: u32,
    #[serde(default = "default_profile")]
    pub(crate) profile: String,
    #[serde(default = "default_model")]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) load_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) speed: Option<f64>,
    #[serde(default)]
    pub(crate) slots: Option<usize>,
    #[serde(default)]
    pub(crate) beta: Option<f64>,
    #[serde(default)]
    pub(crate) prefill_tokens_per_s: Option<f64>,
    #[serde(default)]
    pub(crate) decode_tokens_per_s: Option<f64>,
}

fn default_profile() -> String {
    "a100-80gb".to_owned()
}

fn default_model() -> String {
    "tide-1b".to_owned()
}

impl Config {
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let config: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a configuration", path.display()))?;
        ensure!(!config.gpus.is_empty(), "gpus: is empty");
        for gpu in &config.gpus {
            gpu.profile().with_context(|| format!("gpu at {}", gpu.listen))?;
        }
        Ok(config)
    }
}

impl GpuConfig {
    /// The named profile with this GPU's overrides.
    pub(crate) fn profile(&self) -> anyhow::Result<Profile> {
        let Some(mut profile) = Profile::named(&self.profile) else {
            bail!("profile: {} is none of {}", self.profile, Profile::names());
        };
        profile.slots = self.slots.unwrap_or(profile.slots);
        ensure!(
            (1..=4_096).contains(&profile.slots),
            "slots: {} is outside 1..=4096",
            profile.slots
        );
        for (name, given, field) in [
            ("speed", self.speed, &mut profile.speed),
            ("beta", self.beta, &mut profile.beta),
            ("prefill_tokens_per_s", self.prefill_tokens_per_s, &mut profile.prefill_tokens_per_s),
            ("decode_tokens_per_s", self.decode_tokens_per_s, &mut profile.decode_tokens_per_s),
        ] {
            *field = given.unwrap_or(*field);
            let least = if name == "beta" { 0.0 } else { 1e-3 };
            ensure!((least..=1e9).contains(field), "{name}: {field} is outside {least}..=1e9");
        }
        Ok(profile)
    }
}
