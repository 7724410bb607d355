use alloc::string::String;
use core::fmt;

/// One thing wrong with a configuration, and where.
///
/// Shape: `path: value is outside range`. The path is in the notation `services[0].retries.max`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub path: String,
    pub problem: Problem,
}

/// What is wrong at a path. Texts are lowercase and name the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A required field is absent.
    Missing { expected: String },
    /// Another kind of value stands there.
    WrongType { found: String, expected: String },
    /// A number, a length or a name is not allowed.
    Outside { value: String, allowed: String },
    /// Nobody asks for this key.
    UnknownKey { nearest: Option<String> },
    /// The same key stands twice in one object.
    DuplicateKey,
    /// A rule over several fields is broken.
    Rule { text: String },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str("(top level): ")?;
        } else {
            write!(f, "{}: ", self.path)?;
        }
        match &self.problem {
            Problem::Missing { expected } => write!(f, "is missing; expected {expected}"),
            Problem::WrongType { found, expected } => write!(f, "{found} is not {expected}"),
            Problem::Outside { value, allowed } => write!(f, "{value} is outside {allowed}"),
            Problem::UnknownKey { nearest: None } => f.write_str("is not a known key"),
            Problem::UnknownKey { nearest: Some(near) } => {
                write!(f, "is not a known key; did you mean `{near}`")
            }
            Problem::DuplicateKey => f.write_str("appears more than once"),
            Problem::Rule { text } => f.write_str(text),
        }
    }
}

impl core::error::Error for ConfigError {}
