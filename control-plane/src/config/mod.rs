//! The configuration of the control plane: what may stand in its YAML file.
//!
//! Read strictly: an unknown key is an error, and all errors come at once with path, value and range.
//! The same functions describe the shape, from which `tidegate check`, the JSON schema and the README
//! table come. A relative path of the discovery file is relative to the configuration file.

mod limits;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use tidegate_strict::{ConfigError, Need, Node, Problem, Shape, Value};

pub use limits::{Limits, Timeouts};

use crate::text;

/// Largest configuration file read, in bytes.
pub const FILE_BYTES_MAX: u64 = 262_144;

/// Longest path of a file, as Linux has it.
const PATH_BYTES_MAX: usize = 4_096;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    pub period: Duration,
    pub discovery: Discovery,
    pub weighting: tidegate_weighting::Settings,
    pub limits: Limits,
    pub timeouts: Timeouts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    pub file: PathBuf,
    pub poll: Duration,
}

impl Config {
    /// Reads one configuration; `base` is the folder that relative paths start from.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(value: &Value, base: &Path) -> Result<Self, Vec<ConfigError>> {
        let mut config = tidegate_strict::read(value, Self::read)?;
        if let Some(error) = crate::settings::broken_rules(&config.weighting) {
            return Err(vec![error]);
        }
        config.discovery.file = base.join(&config.discovery.file);
        Ok(config)
    }

    /// Reads the configuration file.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML, or breaks a rule.
    pub fn load(path: &Path) -> Result<Self, ReadError> {
        let content = text::read_bounded(path, FILE_BYTES_MAX)?;
        let value = text::yaml(&content)?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::parse(&value, base).map_err(ReadError::Rules)
    }

    fn read(n: &mut Node<'_>) -> Self {
        n.int("version", 1..=1, Need::Required, "version of this format");
        let (grpc, admin) = n.object("listen", "addresses to listen on", |n| {
            (
                address(n, "grpc", "127.0.0.1:9000", "reporters and proxies come here"),
                address(n, "admin", "127.0.0.1:9001", "health, metrics and the API for people"),
            )
        });
        Self {
            grpc,
            admin,
            period: Duration::from_millis(n.int(
                "period_ms",
                100..=5_000,
                Need::Default(500),
                "time between two updates to the proxies",
            )),
            discovery: n.object("discovery", "where services and endpoints come from", |n| {
                Discovery {
                    file: n
                        .text(
                            "file",
                            PATH_BYTES_MAX,
                            Need::Required,
                            "YAML file of services and endpoints, read again when it changes",
                        )
                        .into(),
                    poll: Duration::from_millis(n.int(
                        "poll_ms",
                        50..=60_000,
                        Need::Default(500),
                        "how often the file is looked at",
                    )),
                }
            }),
            weighting: n.object(
                "weighting",
                "how weights come out of reports",
                crate::settings::read,
            ),
            limits: n.object("limits", "how much of anything is taken", Limits::read),
            timeouts: n.object("timeouts", "how long anything may take", Timeouts::read),
        }
    }
}

/// What may stand in the configuration.
#[must_use]
pub fn shape() -> Shape {
    tidegate_strict::describe(Config::read)
}

/// Why a file gave no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
    #[error("{path}: {bytes} bytes is outside 0..={bytes_max}")]
    TooLarge { path: String, bytes: u64, bytes_max: u64 },
    #[error("{path}: is not UTF-8")]
    NotText { path: String },
    #[error("{message}")]
    Syntax { message: String },
    #[error("{}", join(.0))]
    Rules(Vec<ConfigError>),
}

impl ReadError {
    /// One line per thing that is wrong.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Rules(errors) => errors.iter().map(ToString::to_string).collect(),
            other => vec![other.to_string()],
        }
    }
}

/// A rule that one field alone cannot show.
pub(crate) fn rule(path: String, text: String) -> ConfigError {
    ConfigError { path, problem: Problem::Rule { text } }
}

fn join(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn address(
    n: &mut Node<'_>,
    name: &'static str,
    default: &'static str,
    doc: &'static str,
) -> SocketAddr {
    let parsed =
        n.parsed(name, "an address ip:port", Need::Default(default), |s| s.parse().ok(), doc);
    parsed.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
}

#[cfg(test)]
mod tests;
