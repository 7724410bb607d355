//! The stages of `cargo xtask test`, each from tools to counts.
//!
//! All native stages build the same selection, the whole workspace with its tests, so that features
//! unify the same way and nothing is compiled twice; which tests run is chosen by filter. Fuzz targets
//! and wasm have build folders of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::config::Workshop;
use crate::counts::{Counts, Reader, Runner};
use crate::{generate, process, wasm};

/// Tests with real processes, and tests that look at the repository itself.
const TESTS: &str = "tidegate-tests";
/// The test binary of [`TESTS`] that starts no processes of ours.
const STRUCTURE: &str = "structure";
/// Test binaries that hold nothing but tests of generated files, counted in a stage of their own.
const GENERATED_BINARIES: &[&str] = &["fresh"];
const FUZZ_SECONDS: u32 = 60;

/// Tells the tests, demo and benches where everything is.
pub(crate) fn name_the_tools(shop: &Workshop, command: &mut Command, bin_dir: &Path) {
    command.env("TIDEGATE_ENVOY", shop.tools.join("venv/bin/envoy"));
    command.env("TIDEGATE_WASM", shop.wasm_file());
    command.env("TIDEGATE_BIN_DIR", bin_dir);
}

/// One check that is no test run: passed, or failed with the end of its output.
pub(crate) fn check(name: &str, command: Command) -> Result<Counts> {
    let mut output = String::new();
    let status = process::lines(command, |line| {
        println!("{line}");
        output.push_str(line);
        output.push('\n');
    })?;
    if status.success() {
        return Ok(Counts::pass());
    }
    Ok(Counts::fail(name, process::tail(&output)))
}

pub(crate) fn format(shop: &Workshop) -> Result<Counts> {
    if shop.which("rustfmt").is_none() {
        return Ok(Counts::skip("format", "rustfmt is missing: rustup component add rustfmt"));
    }
    check("format", shop.cargo(["fmt", "--all", "--", "--check", "--color=never"]))
}

pub(crate) fn lints(shop: &Workshop) -> Result<Counts> {
    if shop.which("cargo-clippy").is_none() {
        return Ok(Counts::skip("lints", "clippy is missing: rustup component add clippy"));
    }
    let arguments =
        ["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    check("lints", shop.cargo(arguments))
}

pub(crate) fn build(shop: &Workshop) -> Result<Counts> {
    check("build", shop.cargo(["build", "--quiet", "--workspace", "--all-targets"]))
}

pub(crate) fn filter(shop: &Workshop) -> Result<Counts> {
    if let Err(error) = wasm::way(shop) {
        return Ok(Counts::skip("filter", format!("{error:#}")));
    }
    Ok(match wasm::build(shop) {
        Ok(report) => {
            println!("{report}");
            Counts::pass()
        }
        Err(error) => Counts::fail("filter", format!("{error:#}")),
    })
}

/// Which of the workspace's tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tests {
    Unit,
    Structure,
    EndToEnd,
    Generated,
}

impl Tests {
    /// In nextest's filter language.
    fn filter(self) -> String {
        let generated: Vec<String> = generate::FRESH
            .iter()
            .map(|fresh| {
                let module = fresh.module.map(|module| format!(" & test(/^{module}/)"));
                format!("(binary(={}){})", fresh.binary, module.unwrap_or_default())
            })
            .collect();
        let generated = generated.join(" | ");
        let structure = format!("package(={TESTS}) & binary(={STRUCTURE})");
        match self {
            Self::Unit => format!("not package(={TESTS}) - ({generated})"),
            Self::Structure => format!("{structure} - ({generated})"),
            Self::EndToEnd => format!("package(={TESTS}) - ({structure})"),
            Self::Generated => generated,
        }
    }
}

/// Runs a part of the workspace's tests, with nextest or else with cargo's own runner.
pub(crate) fn tests(shop: &Workshop, which: Tests, name: &str, strict: bool) -> Result<Counts> {
    let nextest = shop.which("cargo-nextest").is_some();
    let (mut commands, runner) = if nextest {
        (vec![with_nextest(shop, which)], Runner::Nextest)
    } else {
        (with_libtest(shop, which)?, Runner::Libtest)
    };
    let mut counts = Counts::default();
    for command in &mut commands {
        name_the_tools(shop, command, &shop.target.join("debug"));
        // An error's message matters, not where it was made; panics keep their traces.
        command.env("RUST_LIB_BACKTRACE", "0");
        if strict {
            command.env("TIDEGATE_STRICT", "1");
        }
    }
    for command in commands {
        let mut reader = Reader::new(runner);
        if which == Tests::Unit {
            reader = reader.without(GENERATED_BINARIES);
        }
        counts.add(read(command, reader, name)?);
    }
    Ok(counts)
}

fn with_nextest(shop: &Workshop, which: Tests) -> Command {
    let mut command = shop.cargo(["nextest", "run", "--workspace", "--color=never"]);
    command.args([
        "--no-fail-fast",
        "--no-tests=pass",
        "--show-progress=none",
        "--no-input-handler",
    ]);
    command.args(["--status-level=pass", "--final-status-level=none"]);
    command.args(["--success-output=immediate", "--failure-output=immediate"]);
    command.arg("--filterset").arg(which.filter());
    if which == Tests::EndToEnd {
        // Each test starts an Envoy and more; two at a time would measure the machine.
        command.arg("--test-threads=1");
    }
    command
}

fn with_libtest(shop: &Workshop, which: Tests) -> Result<Vec<Command>> {
    let base = |arguments: &[&str]| {
        let mut command = shop.cargo(["test", "--no-fail-fast"]);
        command.args(arguments);
        command
    };
    let mut commands = match which {
        Tests::Unit => {
            vec![base(&["--workspace", "--exclude", TESTS, "--lib", "--bins", "--tests"])]
        }
        Tests::Structure => vec![base(&["--package", TESTS, "--test", STRUCTURE])],
        Tests::EndToEnd => {
            let mut command = base(&["--package", TESTS, "--lib"]);
            for binary in test_binaries(shop)?.iter().filter(|binary| *binary != STRUCTURE) {
                command.args(["--test", binary]);
            }
            vec![command]
        }
        Tests::Generated => generate::FRESH
            .iter()
            .map(|fresh| base(&["--package", fresh.package, "--test", fresh.binary]))
            .collect(),
    };
    for (number, command) in commands.iter_mut().enumerate() {
        command.args(["--", "--show-output"]);
        match which {
            Tests::Unit => {}
            Tests::EndToEnd => drop(command.arg("--test-threads=1")),
            Tests::Structure => {
                for fresh in generate::FRESH.iter().filter(|fresh| fresh.package == TESTS) {
                    command.args(fresh.module.iter().flat_map(|module| ["--skip", module]));
                }
            }
            Tests::Generated => drop(command.args(generate::FRESH[number].module)),
        }
    }
    Ok(commands)
}

/// Names of the test binaries of [`TESTS`].
fn test_binaries(shop: &Workshop) -> Result<Vec<String>> {
    let folder = shop.root.join("tests/tests");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| {
        let file = entry.path();
        let own = file.extension().is_some_and(|extension| extension == "rs");
        let name = if own { file.file_stem()? } else { file.file_name()? };
        (own || file.join("main.rs").is_file()).then(|| name.to_string_lossy().into_owned())
    });
    Ok(names.collect())
}

pub(crate) fn doc_tests(shop: &Workshop) -> Result<Counts> {
    let command = shop.cargo(["test", "--workspace", "--doc", "--no-fail-fast"]);
    read(command, Reader::new(Runner::Libtest), "doc tests")
}

/// The policy tests compiled to wasm, under Node: the same code that the filter carries.
pub(crate) fn node(shop: &Workshop, name: &str) -> Result<Counts> {
    let Some(runner) = shop.which("wasm-bindgen-test-runner") else {
        return Ok(Counts::skip(name, "wasm-bindgen-cli is missing: cargo xtask setup --all"));
    };
    if shop.which("node").is_none() {
        return Ok(Counts::skip(name, "Node.js is missing: install Node.js 20 or newer"));
    }
    if !wasm::has_target(shop, wasm::NODE_TARGET) {
        let how = format!("rustup target add {}", wasm::NODE_TARGET);
        return Ok(Counts::skip(name, format!("the wasm target is missing: {how}")));
    }
    let arguments =
        ["test", "--package", "tidegate-policy", "--test", "wasm", "--target", wasm::NODE_TARGET];
    let mut command = shop.cargo(arguments);
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", runner);
    read(command, Reader::new(Runner::Libtest), name)
}

/// Every fuzz target for a minute; each counts as one test.
pub(crate) fn fuzz(shop: &Workshop, name: &str) -> Result<Counts> {
    if shop.which("cargo-fuzz").is_none() {
        return Ok(Counts::skip(name, "cargo-fuzz is missing: cargo xtask setup --all"));
    }
    let fuzz = |arguments: &[&str]| {
        let mut command = shop.cargo(["fuzz"]);
        // The instrumentation is a nightly flag; the pinned compiler takes it when told so.
        command.args(arguments).env("RUSTC_BOOTSTRAP", "1").env_remove("CARGO_TARGET_DIR");
        command
    };
    let list = process::quiet(&mut fuzz(&["list", "--fuzz-dir", "tests/fuzz"]))?;
    let target_dir = shop.target.join("fuzz").display().to_string();
    let time = format!("-max_total_time={FUZZ_SECONDS}");
    let mut counts = Counts::default();
    for target in list.split_whitespace() {
        println!("fuzz target {target}, {FUZZ_SECONDS} s");
        // What is found goes to the first folder; the checked-in inputs are read and stay as they are.
        let found = shop.target.join("fuzz-corpus").join(target);
        fs::create_dir_all(&found).with_context(|| format!("creating {}", found.display()))?;
        let run = ["run", "--fuzz-dir", "tests/fuzz", "--target-dir", &target_dir];
        let mut command = fuzz(&run);
        command.args(["--sanitizer", "none", target]).arg(found);
        command.args([&format!("tests/fuzz/corpus/{target}"), "--", &time]);
        counts.add(quiet_check(&format!("fuzz {target}"), command)?);
    }
    Ok(counts)
}

/// The rules of `buf lint` for the wire, and no breaking change against the last release.
pub(crate) fn wire_rules(shop: &Workshop, name: &str) -> Result<Counts> {
    let Some(buf) = shop.which("buf") else {
        return Ok(Counts::skip(name, "buf is missing: cargo xtask setup --all"));
    };
    // Answers of both services are named for what they carry, not for the call.
    let config = r#"{"version":"v2","lint":{"use":["STANDARD"],
        "except":["RPC_RESPONSE_STANDARD_NAME","RPC_REQUEST_RESPONSE_UNIQUE"]},
        "breaking":{"use":["WIRE_JSON"]}}"#;
    let buf = || {
        let mut command = shop.command(&buf);
        command.current_dir(shop.root.join("proto"));
        command
    };
    let mut lint = buf();
    lint.args(["lint", ".", "--config", config]);
    let mut counts = check("buf lint", lint)?;
    let mut describe = shop.command("git");
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    if let Some(release) = process::first_line(&mut describe) {
        let mut breaking = buf();
        let against = format!("../.git#tag={release},subdir=proto");
        breaking.args(["breaking", ".", "--config", config, "--against", &against]);
        counts.add(check("buf breaking", breaking)?);
    }
    Ok(counts)
}

/// A check whose output matters only when it fails.
fn quiet_check(name: &str, command: Command) -> Result<Counts> {
    let mut output = String::new();
    let status = process::lines(command, |line| {
        output.push_str(line);
        output.push('\n');
    })?;
    Ok(if status.success() { Counts::pass() } else { Counts::fail(name, process::tail(&output)) })
}

fn read(command: Command, mut reader: Reader, name: &str) -> Result<Counts> {
    let status = process::lines(command, |line| {
        if let Some(shown) = reader.line(line) {
            println!("{shown}");
        }
    })?;
    Ok(reader.end(name, status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_part_the_tests() {
        let generated = "(binary(=fresh)) | (binary(=structure) & test(/^generated::/))";
        let structure = "package(=tidegate-tests) & binary(=structure)";
        assert_eq!(Tests::Generated.filter(), generated);
        assert_eq!(Tests::Unit.filter(), format!("not package(=tidegate-tests) - ({generated})"));
        assert_eq!(Tests::Structure.filter(), format!("{structure} - ({generated})"));
        assert_eq!(Tests::EndToEnd.filter(), format!("package(=tidegate-tests) - ({structure})"));
    }
}
