//! Where the programs are that the harness starts. The only file here that reads the environment.

use std::env;
use std::path::{Path, PathBuf};

/// Paths of everything that is started; found once for each rig.
#[derive(Clone, Debug)]
pub struct Tools {
    pub root: PathBuf,
    pub envoy: PathBuf,
    pub wasm: PathBuf,
    pub bin_dir: PathBuf,
    /// Below it each rig has its own folder.
    pub work_dir: PathBuf,
}

/// A program that is not there, and how to get it.
#[derive(Debug, thiserror::Error)]
#[error("{} is missing: {remedy}", path.display())]
pub struct Missing {
    pub path: PathBuf,
    pub remedy: &'static str,
}

#[expect(clippy::disallowed_methods, reason = "this is the file that reads the environment")]
fn path_or(name: &str, default: PathBuf) -> PathBuf {
    env::var_os(name).filter(|value| !value.is_empty()).map_or(default, PathBuf::from)
}

/// Whether a skipped test is a failure: set by `cargo xtask test --strict`.
#[must_use]
pub fn is_strict() -> bool {
    path_or("TIDEGATE_STRICT", PathBuf::new()).as_os_str() == "1"
}

impl Tools {
    /// Paths from the environment, or where `cargo xtask` puts things.
    #[must_use]
    pub fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let target = root.join(path_or("CARGO_TARGET_DIR", root.join("target")));
        Self {
            root: root.to_path_buf(),
            envoy: path_or("TIDEGATE_ENVOY", root.join(".tools/venv/bin/envoy")),
            wasm: path_or("TIDEGATE_WASM", target.join("wasm32-wasip1/wasm/tidegate_filter.wasm")),
            bin_dir: path_or("TIDEGATE_BIN_DIR", target.join("debug")),
            work_dir: target.join("e2e"),
        }
    }

    #[must_use]
    pub fn bin(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    #[must_use]
    pub fn fake_nvml(&self) -> PathBuf {
        self.bin("libtidegate_fake_nvml.so")
    }

    /// The Envoy configuration that is shipped.
    #[must_use]
    pub fn standalone(&self) -> PathBuf {
        self.root.join("istio/standalone/envoy.yaml")
    }

    /// All that a whole rig needs.
    ///
    /// # Errors
    /// The first program that is missing.
    pub fn check(&self) -> Result<(), Missing> {
        let build = "cargo build --workspace";
        for (path, remedy) in [
            (self.envoy.clone(), "cargo xtask setup"),
            (self.wasm.clone(), "cargo xtask wasm"),
            (self.bin("tidegate"), build),
            (self.bin("tidegate-gpu-reporter"), build),
            (self.bin("tidegate-model-server"), build),
            (self.fake_nvml(), build),
        ] {
            if !path.is_file() {
                return Err(Missing { path, remedy });
            }
        }
        Ok(())
    }
}
