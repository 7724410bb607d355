//! Where settings come from: flags over environment over file; read once, at the start.
//!
//! Flags and environment are laid over the file's tree as texts and numbers, and the whole is read
//! strictly, so a value out of range is refused the same way wherever it stands.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use tidegate_reporter_config::{ReporterConfig, is_name_char, parse};
use tidegate_strict::Value;

/// Largest configuration file that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Reads one GPU node (NVML, model servers, host) and reports it to the Tidegate control plane.
///
/// Run `tidegate-gpu-reporter --once` first on a new node: it prints what the driver says and exits.
///
/// Every flag may be given as an environment variable or in the file as well; flags win over
/// environment, environment over file.
#[derive(Clone, Debug, Default, Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Args {
    /// Configuration file (YAML); its keys are the flags with `_` for `-`, and `version: 1`
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where reports go; without it only /metrics is served
    #[arg(long, env = "TIDEGATE_CONTROL_PLANE", value_name = "http://HOST:PORT")]
    pub control_plane: Option<String>,

    /// Name of this node in reports [default: the host name]
    #[arg(long, env = "TIDEGATE_NODE")]
    pub node: Option<String>,

    /// Driver library [default: libnvidia-ml.so.1 in the usual places]
    #[arg(long, env = "TIDEGATE_NVML_LIB", value_name = "PATH")]
    pub nvml_lib: Option<String>,

    /// Which model server runs on which GPU; re-read when it changes
    #[arg(long, env = "TIDEGATE_WORKLOADS", value_name = "FILE")]
    pub workloads: Option<String>,

    /// Period of reports and of load, memory, temperature and clocks [100..=10000, default: 500]
    #[arg(long, env = "TIDEGATE_INTERVAL_MS", value_name = "MS")]
    pub interval_ms: Option<u64>,

    /// Period of ECC, remapped rows, PCIe and MIG [1000..=600000, default: 10000]
    #[arg(long, env = "TIDEGATE_MEDIUM_INTERVAL_MS", value_name = "MS")]
    pub medium_interval_ms: Option<u64>,

    /// Period of limits, maxima and calls that were unsupported [1000..=3600000, default: 60000]
    #[arg(long, env = "TIDEGATE_SLOW_INTERVAL_MS", value_name = "MS")]
    pub slow_interval_ms: Option<u64>,

    /// A driver call longer than this makes its GPU slow [50..=30000, default: 500]
    #[arg(long, env = "TIDEGATE_SLOW_CALL_MS", value_name = "MS")]
    pub slow_call_ms: Option<u64>,

    /// A driver call longer than this makes its GPU hung [200..=60000, default: 1000]
    #[arg(long, env = "TIDEGATE_HUNG_CALL_MS", value_name = "MS")]
    pub hung_call_ms: Option<u64>,

    /// Longest wait for a model server's metrics [50..=5000, default: 500]
    #[arg(long, env = "TIDEGATE_SCRAPE_TIMEOUT_MS", value_name = "MS")]
    pub scrape_timeout_ms: Option<u64>,

    /// Where /healthz, /readyz and /metrics are served [default: 127.0.0.1:9400]
    #[arg(long, env = "TIDEGATE_LISTEN", value_name = "IP:PORT")]
    pub listen: Option<String>,

    /// Report only these GPUs, by index or UUID, for one daemon per GPU [default: all]
    #[arg(long, env = "TIDEGATE_GPUS", value_name = "0,GPU-…", value_delimiter = ',')]
    pub gpus: Vec<String>,

    /// How many GPUs this node should have
    #[arg(long, env = "TIDEGATE_EXPECTED_GPUS", value_name = "N")]
    pub expected_gpus: Option<u64>,

    /// List compute processes with their memory (costs 4.5 ms of driver lock per GPU and call)
    #[arg(long, env = "TIDEGATE_PROCESSES")]
    pub processes: bool,

    /// Log filter, for instance info or debug
    #[arg(long, env = "TIDEGATE_LOG", value_name = "FILTER")]
    pub log: Option<String>,

    /// Print one sample and exit
    #[arg(long)]
    pub once: bool,

    /// Form of the sample
    #[arg(long, value_enum, default_value_t = Output::Table, requires = "once")]
    pub output: Output,
}

const EXIT_CODES: &str = "Exit codes: 0 fine · 1 the driver fails, or a GPU is lost, hung or missing · \
2 wrong usage or configuration · 3 no driver";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

impl Args {
    /// Reads the file, lays flags and environment over it, and checks the whole.
    ///
    /// # Errors
    /// Every problem at once, one text each.
    pub fn settings(&self) -> Result<ReporterConfig, Vec<String>> {
        let mut tree = match &self.config {
            Some(path) => read_tree(path)?,
            None => Value::Map(vec![("version".into(), Value::Int(1))]),
        };
        if let Value::Map(entries) = &mut tree {
            for (key, value) in self.overlay() {
                entries.retain(|(k, _)| k != key);
                entries.push((key.into(), value));
            }
        }
        parse(&tree).map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    fn overlay(&self) -> Vec<(&'static str, Value)> {
        let text = |v: &Option<String>| v.clone().map(Value::Text);
        let int = |v: Option<u64>| v.map(|v| Value::Int(v.into()));
        let gpus = || self.gpus.iter().map(|name| gpu_value(name)).collect();
        let all = [
            ("control_plane", text(&self.control_plane)),
            ("node", text(&self.node)),
            ("nvml_lib", text(&self.nvml_lib)),
            ("workloads", text(&self.workloads)),
            ("interval_ms", int(self.interval_ms)),
            ("medium_interval_ms", int(self.medium_interval_ms)),
            ("slow_interval_ms", int(self.slow_interval_ms)),
            ("slow_call_ms", int(self.slow_call_ms)),
            ("hung_call_ms", int(self.hung_call_ms)),
            ("scrape_timeout_ms", int(self.scrape_timeout_ms)),
            ("listen", text(&self.listen)),
            ("gpus", (!self.gpus.is_empty()).then(|| Value::List(gpus()))),
            ("expected_gpus", int(self.expected_gpus)),
            ("processes", self.processes.then_some(Value::Bool(true))),
            ("log", text(&self.log)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

fn gpu_value(name: &str) -> Value {
    let name = name.trim();
    name.parse::<u64>().map_or_else(|_| Value::Text(name.into()), |n| Value::Int(n.into()))
}

fn read_tree(path: &Path) -> Result<Value, Vec<String>> {
    let problem = |e: &dyn std::fmt::Display| vec![format!("{}: {e}", path.display())];
    let bytes = std::fs::metadata(path).map_err(|e| problem(&e))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(problem(&format!("{bytes} bytes are more than {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| problem(&e))?;
    serde_saphyr::from_str(&text).map_err(|e| problem(&e))
}

/// Name of this node: the setting, else the host name.
#[must_use]
pub fn node_name(config: &ReporterConfig) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = config.node.clone().or_else(host).unwrap_or_default();
    let safe = |c: char| if is_name_char(c) { c } else { '_' };
    let name: String = name.trim().chars().take(63).map(safe).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Which part of the node this reporter covers: empty for all of it.
#[must_use]
pub fn part_name(gpus: &[String]) -> String {
    let joined = gpus.join("|");
    if joined.len() <= 63 {
        return joined;
    }
    // FNV-1a: stable over restarts, and two parts of one node do not meet by chance.
    let hash = joined.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("gpus-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args::try_parse_from([&["tidegate-gpu-reporter"], words].concat()).unwrap()
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn flags_win_over_the_file() {
        let path = file("flags.yaml", "version: 1\ninterval_ms: 700\nnode: from-file\n");
        let path = path.to_str().unwrap();
        let config = args(&["--config", path, "--interval-ms", "800"]).settings().unwrap();
        assert_eq!((config.interval_ms, config.node.as_deref()), (800, Some("from-file")));
    }

    #[test]
    fn a_flag_out_of_range_is_refused_like_a_file() {
        let errors = args(&["--interval-ms", "99", "--gpus", "0,64"]).settings().unwrap_err();
        assert_eq!(
            errors,
            ["gpus[1]: 64 is outside 0..=63", "interval_ms: 99 is outside 100..=10000"]
        );
    }

    #[test]
    fn gpus_are_a_list_of_indices_and_uuids() {
        let config = args(&["--gpus", "0, GPU-a"]).settings().unwrap();
        assert_eq!(config.gpus.len(), 2);
    }

    #[test]
    fn a_missing_file_is_named() {
        let errors = args(&["--config", "/nonexistent/x.yaml"]).settings().unwrap_err();
        assert!(errors[0].starts_with("/nonexistent/x.yaml: "), "{errors:?}");
    }

    #[test]
    fn a_part_fits_a_label() {
        let names = |n: usize| -> Vec<String> { (0..n).map(|i| format!("GPU-{i:032}")).collect() };
        assert_eq!(part_name(&[]), "");
        assert_eq!(part_name(&["0".into(), "3".into()]), "0|3");
        assert_eq!(part_name(&names(8)).len(), 21);
        assert_ne!(part_name(&names(8)), part_name(&names(7)));
    }
}
