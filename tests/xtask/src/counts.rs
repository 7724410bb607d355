//! What test runners print, turned into counts.
//!
//! Three runners are read line by line: cargo-nextest, libtest (plain `cargo test`, doc tests) and
//! wasm-bindgen's, which prints as libtest does. Counted are the lines of single tests, not the
//! summaries: a summary is absent after a crash, and counts what a filter left out as skipped.
//!
//! A test that cannot run because a tool is missing prints `SKIPPED: reason` and passes. Here it counts
//! as skipped, once per test.

use std::collections::VecDeque;

/// Lines kept of a failed test, from the end.
const OUTPUT_LINES_MAX: usize = 40;
const SKIP_MARK: &str = "SKIPPED: ";

/// What came of a stage.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: Vec<Named>,
    pub(crate) skipped: Vec<Named>,
}

/// A test, and why it is named: the end of its output, or why it was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Counts {
    pub(crate) fn pass() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    pub(crate) fn fail(name: &str, text: impl Into<String>) -> Self {
        let failed = vec![Named { name: name.into(), text: text.into() }];
        Self { failed, ..Self::default() }
    }

    pub(crate) fn skip(name: &str, reason: impl Into<String>) -> Self {
        let skipped = vec![Named { name: name.into(), text: reason.into() }];
        Self { skipped, ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// The closing line, in the form that build machines read.
    pub(crate) fn line(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Passed,
    Failed,
    Ignored,
}

/// Reads the output of one runner.
pub(crate) struct Reader {
    runner: Runner,
    counts: Counts,
    /// The test whose output is being read, and that output.
    current: Option<(String, Status)>,
    output: VecDeque<String>,
    /// The file that libtest is running; its test names alone are not unique.
    binary: String,
    /// Binaries whose tests are counted elsewhere.
    ignored_binaries: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    Nextest,
    Libtest,
}

impl Reader {
    pub(crate) fn new(runner: Runner) -> Self {
        Self {
            runner,
            counts: Counts::default(),
            current: None,
            output: VecDeque::new(),
            binary: String::new(),
            ignored_binaries: &[],
        }
    }

    /// Leaves out the tests of binaries with these names.
    pub(crate) fn without(mut self, binaries: &'static [&'static str]) -> Self {
        self.ignored_binaries = binaries;
        self
    }

    /// Takes a line; returns what is worth showing at once.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        match self.runner {
            Runner::Nextest => self.nextest(line),
            Runner::Libtest => self.libtest(line),
        }
    }

    /// The counts, once the runner has ended; `fine` is its own verdict.
    pub(crate) fn end(mut self, stage: &str, fine: bool) -> Counts {
        let rest: Vec<String> = self.output.iter().cloned().collect();
        self.close();
        if !fine && self.counts.failed.is_empty() {
            // It broke before or outside a test: a build error, a crash.
            self.counts.add(Counts::fail(stage, rest.join("\n")));
        }
        self.counts
    }

    fn nextest(&mut self, line: &str) -> Option<String> {
        if let Some((status, name)) = nextest_status(line) {
            self.close();
            self.current = Some((name.clone(), status));
            return Some(line.trim().to_owned());
        }
        if line.trim_start().starts_with("Summary [") {
            self.close();
            return Some(line.trim().to_owned());
        }
        self.keep(line);
        // Before the first test the lines are cargo's.
        self.current.is_none().then(|| line.to_owned())
    }

    fn libtest(&mut self, line: &str) -> Option<String> {
        if let Some(binary) = libtest_binary(line) {
            self.close();
            self.binary = binary;
            return Some(line.to_owned());
        }
        let elsewhere = self.ignored_binaries.contains(&self.binary.as_str());
        if let Some((name, status)) = libtest_status(line) {
            let name = format!("{} {name}", self.binary);
            match status {
                _ if elsewhere => {}
                Status::Passed => self.counts.passed += 1,
                Status::Ignored => self.counts.add(Counts::skip(&name, "ignored")),
                Status::Failed => self.counts.add(Counts::fail(&name, "")),
            }
            return Some(line.to_owned());
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let name =
                name.strip_suffix(" stdout").or(name.strip_suffix(" output")).unwrap_or(name);
            self.close();
            self.current = Some((format!("{} {name}", self.binary), Status::Passed));
            return None;
        }
        if ["test result:", "failures:", "successes:"].iter().any(|mark| line.starts_with(mark)) {
            self.close();
            return line.starts_with("test result:").then(|| line.to_owned());
        }
        self.keep(line);
        self.current.is_none().then(|| line.to_owned())
    }

    fn keep(&mut self, line: &str) {
        self.output.push_back(line.to_owned());
        if self.output.len() > OUTPUT_LINES_MAX {
            self.output.pop_front();
        }
    }

    /// The output of the current test is complete.
    fn close(&mut self) {
        let output = std::mem::take(&mut self.output);
        let Some((name, status)) = self.current.take() else { return };
        let text = Vec::from(output).join("\n");
        let reason = text.lines().find_map(|line| line.trim_start().strip_prefix(SKIP_MARK));
        match (self.runner, status) {
            (Runner::Nextest, Status::Failed) => self.counts.failed.push(Named { name, text }),
            (Runner::Nextest, _) => match reason {
                Some(reason) => self.counts.add(Counts::skip(&name, reason)),
                None => self.counts.passed += 1,
            },
            // Counted when its status line came; this is its output, printed after all of them.
            (Runner::Libtest, _) => {
                if let Some(failure) = self.counts.failed.iter_mut().find(|it| it.name == name) {
                    failure.text = text;
                } else if let Some(reason) = reason {
                    self.counts.passed = self.counts.passed.saturating_sub(1);
                    self.counts.add(Counts::skip(&name, reason));
                }
            }
        }
    }
}

/// `        PASS [   0.004s] (1/3) package::binary test::name`
fn nextest_status(line: &str) -> Option<(Status, String)> {
    let (word, rest) = line.trim_start().split_once('[')?;
    let word = word.trim();
    let upper = !word.is_empty()
        && word.chars().all(|c| c.is_ascii_uppercase() || " +-0123456789".contains(c));
    let (time, name) = rest.split_once(']')?;
    // `SLOW [> 60.000s]` is an interim note.
    if !upper || !time.trim().ends_with('s') || time.contains('>') {
        return None;
    }
    let mut name = name.trim();
    if let Some((_, behind)) = name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        name = behind.trim();
    }
    let status = match word {
        "PASS" | "LEAK" => Status::Passed,
        _ => Status::Failed,
    };
    Some((status, name.to_owned()))
}

/// `     Running tests/fresh.rs (target/debug/deps/fresh-0123456789abcdef)`, `   Doc-tests tidegate_proto`
fn libtest_binary(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(name.to_owned());
    }
    let (_, path) = line.strip_prefix("Running ")?.rsplit_once('(')?;
    let file = path.strip_suffix(')')?.rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned())
}

/// `test name ... ok`
fn libtest_status(line: &str) -> Option<(&str, Status)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let status = match result.split([',', ' ']).next()? {
        "ok" => Status::Passed,
        "FAILED" | "FAIL" => Status::Failed,
        "ignored" => Status::Ignored,
        _ => return None,
    };
    Some((name, status))
}

#[cfg(test)]
mod tests;
