//! What stands where, and whether what is written about it is true.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use crate::support::{files_below, root, text};

/// What is visible at the top.
const TOP: &[&str] = &[
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "control-plane",
    "filter",
    "gpu-reporter",
    "istio",
    "proto",
    "rust-toolchain.toml",
    "tests",
];

const CODE_LINES_MAX: usize = 400;
/// A file that is longer says so in its header, with the reason.
const LONG_MARK: &str = "//! Long, because";

#[test]
fn top_level_holds_only_what_belongs_there() -> Result<()> {
    let mut missing: BTreeSet<&str> = TOP.iter().copied().collect();
    for entry in std::fs::read_dir(root())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name.starts_with("target") {
            continue;
        }
        ensure!(missing.remove(name.as_str()), "{name} does not belong at the top level");
    }
    ensure!(missing.is_empty(), "missing at the top level: {missing:?}");
    Ok(())
}

/// Lines that are neither blank nor comment, tests at the end of the file left out.
fn code_lines(code: &str) -> usize {
    let code = code.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn long_files_give_their_reason() -> Result<()> {
    let mut long = Vec::new();
    // A long table of cases reads well; a long program does not.
    for path in all_rust().iter().filter(|path| !path.ends_with("/tests.rs")) {
        let code = text(path)?;
        let lines = code_lines(&code);
        if lines > CODE_LINES_MAX && !code.contains(LONG_MARK) {
            long.push(format!("{path}: {lines}"));
        }
    }
    let how = format!("split them, or say `{LONG_MARK} …` in the header");
    ensure!(
        long.is_empty(),
        "more than {CODE_LINES_MAX} lines of code; {how}:\n{}",
        long.join("\n")
    );
    Ok(())
}

#[test]
fn only_code_is_counted() {
    let code = "//! header\n\nfn a() {}\n// why\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
    assert_eq!(code_lines(code), 1);
}

fn all_rust() -> Vec<String> {
    let files = files_below("").into_iter().filter(|path| path.ends_with(".rs"));
    files.filter(|path| !path.contains("/gen/")).collect()
}

fn all_markdown() -> Vec<String> {
    files_below("").into_iter().filter(|path| path.ends_with(".md")).collect()
}

/// Words in backquotes outside of code blocks, and link targets.
fn mentioned(markdown: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        words.extend(line.split('`').skip(1).step_by(2).map(String::from));
        for link in line.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                words.push(target.into());
            }
        }
    }
    words
}

/// Whether a word looks like a path of this repository.
fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let known = TOP.iter().any(|top| word.split('/').next() == Some(top));
    let ending = [".rs", ".proto", ".toml", ".md"].iter().any(|end| word.ends_with(end));
    plain && !word.starts_with('.') && ((known && word.contains('/')) || ending)
}

#[test]
fn paths_named_in_documents_exist() -> Result<()> {
    let everything: BTreeSet<String> = files_below("").into_iter().collect();
    let is_there = |path: &str| {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        everything.contains(path) || everything.iter().any(|file| file.starts_with(&below))
    };
    for document in all_markdown() {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        for word in mentioned(&text(&document)?).iter().filter(|word| is_path(word)) {
            let beside = format!("{folder}/{word}");
            let fine = is_there(word) || is_there(beside.trim_start_matches('/'));
            ensure!(fine, "{document} names `{word}`, which is not there");
        }
    }
    Ok(())
}

#[test]
fn files_named_in_module_headers_exist() -> Result<()> {
    let files = files_below("");
    for path in all_rust() {
        let code = text(&path)?;
        let header = code.lines().map_while(|line| line.strip_prefix("//!"));
        for word in header.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            if word.ends_with(".rs") && is_path(word) {
                let ending = format!("/{word}");
                let fine = files.iter().any(|file| file == word || file.ends_with(&ending));
                ensure!(fine, "{path} names `{word}`, which is not there");
            }
        }
    }
    Ok(())
}

#[test]
fn paths_are_told_from_other_words() {
    for (word, path) in [
        ("filter/policy/src/pick.rs", true),
        ("pick.rs", true),
        ("tests", false),
        ("istio/", true),
        ("tidegate serve", false),
        ("/v1/chat/completions", false),
        (".tools/venv", false),
        ("target/debug/tidegate", false),
    ] {
        assert_eq!(is_path(word), path, "{word}");
    }
    assert_eq!(mentioned("a `b` [c](d.md#e)\n```\n`f`\n```\n`g`"), ["b", "d.md", "g"]);
}

/// Where metrics are named, and how many there are at least.
const METRIC_FILES: &[&str] = &["filter/src", "control-plane/src", "gpu-reporter/src"];

/// Names of metrics in string literals.
fn metric_names(code: &str) -> Vec<&str> {
    let literals = code.split('"').skip(1).step_by(2);
    let plain = |name: &&str| {
        name.strip_prefix("tidegate_").is_some_and(|rest| {
            !rest.is_empty()
                && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
        })
    };
    literals.filter(plain).collect()
}

#[test]
fn metrics_of_the_filter_are_unique_and_in_the_readme() -> Result<()> {
    let readme = text("README.md")?;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let stats = text("filter/src/stats.rs")?;
    for name in metric_names(&stats) {
        *seen.entry(name.into()).or_default() += 1;
    }
    ensure!(seen.len() >= 10, "only {} metrics found", seen.len());
    for (name, times) in &seen {
        ensure!(*times == 1, "{name} is named {times} times");
        ensure!(readme.contains(&format!("`{name}`")), "README.md does not list {name}");
    }
    Ok(())
}

#[test]
fn metric_names_stand_in_one_place_of_each_program() -> Result<()> {
    for folder in METRIC_FILES {
        let mut owner: BTreeMap<String, String> = BTreeMap::new();
        for path in files_below(folder).into_iter().filter(|path| path.ends_with(".rs")) {
            if !path.contains("metrics") && !path.contains("stats") {
                continue;
            }
            for name in metric_names(&text(&path)?) {
                let other = owner.insert(name.into(), path.clone());
                let fine = other.as_ref().is_none_or(|other| *other == path);
                ensure!(fine, "{name} stands in {path} and in {}", other.unwrap_or_default());
            }
        }
    }
    Ok(())
}

#[test]
fn versions_of_images_and_workspace_agree() -> Result<()> {
    let manifest = text("Cargo.toml")?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \""))
        .and_then(|rest| rest.strip_suffix('"'))
        .context("no version in Cargo.toml")?;
    for path in files_below("istio").iter().filter(|path| path.ends_with(".yaml")) {
        for line in text(path)?.lines().filter(|line| line.contains("registry.example.com/")) {
            let tag = line.rsplit(':').next().unwrap_or_default();
            ensure!(tag == version, "{path} names version {tag}, the workspace is {version}");
        }
    }
    Ok(())
}
