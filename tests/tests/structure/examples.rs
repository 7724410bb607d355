//! Every configuration that is shipped, in a manifest or in a document, is accepted by `tidegate check`,
//! and a broken copy is not.

use anyhow::{Context, Result, bail, ensure};
use tidegate_control_plane::check::{self, FileKind};

use crate::support::{documents, files_below, find, text};

/// The kind by the file name that an example carries in its first line.
fn kind_of(file: &str) -> Option<FileKind> {
    Some(match file {
        "filter.json" => FileKind::Filter,
        "control-plane.yaml" => FileKind::ControlPlane,
        "fleet.yaml" => FileKind::Fleet,
        "reporter.yaml" => FileKind::Reporter,
        "workloads.yaml" => FileKind::Workloads,
        _ => return None,
    })
}

fn accepted(what: &str, content: &str, kind: FileKind) -> Result<()> {
    let errors = check::check(what, content, Some(kind)).errors;
    ensure!(errors.is_empty(), "{what}: {}", errors.join("; "));
    // The same with its version misspelt.
    let broken = content.replacen("\"version\": 1", "\"versionn\": 1", 1).replacen(
        "version: 1\n",
        "versionn: 1\n",
        1,
    );
    ensure!(broken != content, "{what} names no version");
    let errors = check::check(what, &broken, Some(kind)).errors;
    ensure!(errors.iter().any(|error| error.contains("versionn")), "{what} takes an unknown key");
    Ok(())
}

#[test]
fn plugin_configurations_are_taken_by_the_filter() -> Result<()> {
    for file in ["istio/filter.yaml", "istio/standalone/envoy.yaml"] {
        accepted(file, &text(file)?, FileKind::Embedded)?;
    }
    Ok(())
}

#[test]
fn configurations_in_manifests_are_taken_by_their_programs() -> Result<()> {
    for (file, key) in [
        ("istio/control-plane.yaml", "control-plane.yaml"),
        ("istio/gpu-reporter.yaml", "reporter.yaml"),
    ] {
        let documents = documents(file)?;
        let data = find(&documents, "ConfigMap")?["data"][key].as_str().context("no such key")?;
        accepted(file, data, kind_of(key).context("a kind")?)?;
    }
    Ok(())
}

/// Fenced blocks of a document whose first line is a comment with a file name that is read by us.
fn blocks(markdown: &str) -> Vec<(FileKind, String)> {
    let parts: Vec<&str> = markdown.split("\n```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    inside
        .filter_map(|block| {
            let (_, body) = block.split_once('\n')?;
            let (first, rest) = body.split_once('\n')?;
            let file = first.strip_prefix("# ").or(first.strip_prefix("// "))?;
            Some((kind_of(file.split(' ').next()?)?, format!("{rest}\n")))
        })
        .collect()
}

#[test]
fn configurations_in_documents_are_taken_by_their_programs() -> Result<()> {
    let mut kinds = Vec::new();
    for path in files_below("").iter().filter(|path| path.ends_with(".md")) {
        for (kind, body) in blocks(&text(path)?) {
            kinds.push(kind);
            accepted(path, &body, kind)?;
        }
    }
    use FileKind::{ControlPlane, Filter, Fleet, Reporter, Workloads};
    for kind in [Filter, ControlPlane, Fleet, Reporter, Workloads] {
        if !kinds.contains(&kind) {
            bail!("no document shows an example of {kind:?}");
        }
    }
    Ok(())
}
