//! Files and text formats, read within bounds.

use std::{fs::File, io::Read, path::Path};

use tidegate_strict::Value;

use crate::config::ReadError;

/// The content of a file of at most `bytes_max` bytes.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8.
pub fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, ReadError> {
    let shown = || path.display().to_string();
    let fail = |error| ReadError::File { path: shown(), error };
    let file = File::open(path).map_err(fail)?;
    let mut content = Vec::new();
    // One byte more than allowed, so that a file that grows while it is read is noticed too.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(fail)?;
    let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if bytes > bytes_max {
        return Err(ReadError::TooLarge { path: shown(), bytes, bytes_max });
    }
    String::from_utf8(content).map_err(|_| ReadError::NotText { path: shown() })
}

/// Reads one YAML document; JSON is YAML too.
///
/// # Errors
/// It is no YAML, or repeats a key.
pub fn yaml(content: &str) -> Result<Value, ReadError> {
    serde_saphyr::from_str(content).map_err(|error| syntax("YAML", &error.to_string()))
}

/// Reads one JSON document.
///
/// # Errors
/// It is no JSON.
pub fn json(content: &str) -> Result<Value, ReadError> {
    serde_json::from_str(content).map_err(|error| syntax("JSON", &error.to_string()))
}

/// The first line of a parser's message, which may repeat pieces of the file.
pub(crate) fn syntax(format: &str, message: &str) -> ReadError {
    let first = message.lines().next().unwrap_or_default();
    let clean: String = first.chars().filter(|c| !c.is_control()).take(200).collect();
    ReadError::Syntax { message: format!("is not {format}: {clean}") }
}

/// At most `bytes_max` bytes of a text, cut between characters and without control characters.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> String {
    let mut kept = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if kept.len() + c.len_utf8() > bytes_max {
            break;
        }
        kept.push(c);
    }
    kept
}

/// A number as people read it: up to four digits behind the point, none where they are zero.
#[must_use]
pub fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Whether this is a name as nodes, services and the like have: letters, digits and `. _ - / : |`.
///
/// No quotes, spaces or control characters, so that a name is safe in a log line, a label and a URL.
#[must_use]
pub fn is_name(text: &str, bytes_max: usize) -> bool {
    !text.is_empty()
        && text.len() <= bytes_max
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:|".contains(&b))
}

/// What a name may be, for errors.
#[must_use]
pub fn name_rule(bytes_max: usize) -> String {
    format!("1..={bytes_max} bytes of letters, digits and . _ - / : |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_whole_characters_and_no_control_characters() {
        for (text, bytes_max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("aé", 2, "a"),
            ("aé", 3, "aé"),
            ("a\nb\u{1b}c", 9, "a b c"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, bytes_max), expected, "{text:?} {bytes_max}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in
            [(0.0, "0"), (1.0, "1"), (0.35, "0.35"), (1.0 / 3.0, "0.3333"), (8_120.0, "8120")]
        {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for (text, expected) in [
            ("node-a.example_1", true),
            ("outbound|8000||llm.ns", true),
            ("", false),
            ("12345678", true),
            ("node a", false),
            ("node\n", false),
            ("nöde", false),
            ("\"", false),
        ] {
            assert_eq!(is_name(text, 64), expected, "{text:?}");
        }
        assert!(is_name(&"n".repeat(64), 64));
        assert!(!is_name(&"n".repeat(65), 64));
    }

    #[test]
    fn file_is_read_at_the_limit_and_refused_above() {
        let path = std::env::temp_dir().join(format!("tidegate-text-{}", std::process::id()));
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), "12345");
        let error = read_bounded(&path, 4).unwrap_err().to_string();
        assert!(error.ends_with("5 bytes is outside 0..=4"), "{error}");
        std::fs::write(&path, b"\xff").unwrap();
        assert!(matches!(read_bounded(&path, 5), Err(ReadError::NotText { .. })));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn broken_yaml_is_an_error_of_one_line() {
        let error = yaml("a: [1").unwrap_err().to_string();
        assert!(error.starts_with("is not YAML: "), "{error}");
        assert!(!error.contains('\n'));
        assert!(yaml("a: 1\na: 2").is_err());
    }
}
