//! Files of the repository, and documents read from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

pub(crate) fn text(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))
}

/// Every file below `folder`, as paths from the root, without build output and hidden folders.
pub(crate) fn files_below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(root().join(folder)) else { return found };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name.starts_with("target") || name == "node_modules" {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.path().is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// All documents of a YAML file.
pub(crate) fn documents(path: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(&text(path)?).with_context(|| format!("{path} is no YAML"))
}

/// A text at a JSON pointer.
pub(crate) fn string<'a>(document: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = document.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("no text at {pointer} of {}", name(document)))
}

/// The first document of a kind.
pub(crate) fn find<'a>(documents: &'a [Value], kind: &str) -> Result<&'a Value> {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.with_context(|| format!("no {kind}"))
}

/// `Kind name`, for messages.
pub(crate) fn name(document: &Value) -> String {
    let part = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", part("/kind"), part("/metadata/name"))
}

/// A folder that goes away with its owner.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-structure-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Writes a document; JSON is YAML too.
    pub(crate) fn write(&self, name: &str, document: &Value) -> Result<PathBuf> {
        let file = self.0.join(name);
        fs::write(&file, document.to_string())?;
        Ok(file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A program of the Python environment, if set up.
pub(crate) fn venv(program: &str) -> Option<PathBuf> {
    Some(root().join(".tools/venv/bin").join(program)).filter(|file| file.is_file())
}

pub(crate) fn run(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("{:?} could not be started", command.get_program()))
}

/// Succeeds if the program did; else carries what it said.
pub(crate) fn accepted(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "refused:\n{}", said(output));
    Ok(())
}

pub(crate) fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
