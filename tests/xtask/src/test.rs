//! `cargo xtask test`: all stages in order, what failed and what was skipped, and one closing line.
//!
//! A stage that fails does not stop the others, except that nothing native runs after a failed build.
//! A skip is named at the end, and with `--strict` it is a failure: a check that did not run proves
//! nothing.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::arguments::{Setup, Test};
use crate::config::Workshop;
use crate::counts::{Counts, Named};
use crate::setup;
use crate::stages::{self, Tests};

struct Report {
    counts: Counts,
    times: Vec<(String, String)>,
    left_out: Vec<&'static str>,
}

pub(crate) fn run(shop: &Workshop, how: Test) -> Result<ExitCode> {
    let start = Instant::now();
    let mut report = Report { counts: Counts::default(), times: Vec::new(), left_out: Vec::new() };
    eprintln!("== set-up");
    setup::as_far_as_possible(shop, Setup { all: !how.fast, real_model: false })?;

    report.stage("format", || stages::format(shop));
    report.stage("lints", || stages::lints(shop));
    let built = report.stage("build", || stages::build(shop));
    report.stage("filter", || stages::filter(shop));
    native(shop, how, built, &mut report);
    report.stage("policy as wasm under Node", || stages::node(shop, "policy as wasm under Node"));
    if how.fast {
        report.left_out.push("fuzz targets");
    } else {
        report.stage("fuzz targets", || stages::fuzz(shop, "fuzz targets"));
    }
    report.stage("wire rules", || stages::wire_rules(shop, "wire rules"));

    report.times.push(("all".into(), seconds(start)));
    Ok(report.close(how))
}

/// The stages that run tests of the native build.
fn native(shop: &Workshop, how: Test, built: bool, report: &mut Report) {
    let parts = [
        ("unit and integration tests", Some(Tests::Unit)),
        ("doc tests", None),
        ("structure and manifests", Some(Tests::Structure)),
        ("generated files", Some(Tests::Generated)),
        ("end to end", Some(Tests::EndToEnd)),
    ];
    for (name, which) in parts {
        if how.fast && which == Some(Tests::EndToEnd) {
            report.left_out.push("end to end");
            continue;
        }
        report.stage(name, || {
            if !built {
                return Ok(Counts::fail(name, "not run: the build failed"));
            }
            match which {
                Some(which) => stages::tests(shop, which, name, how.strict),
                None => stages::doc_tests(shop),
            }
        });
    }
}

impl Report {
    /// Runs one stage; true if nothing in it failed.
    fn stage(&mut self, name: &str, run: impl FnOnce() -> Result<Counts>) -> bool {
        println!("\n== {name}");
        let start = Instant::now();
        let counts = run().unwrap_or_else(|error| Counts::fail(name, format!("{error:#}")));
        println!("   {name}: {} in {}", counts.line(), seconds(start));
        self.times.push((name.to_owned(), seconds(start)));
        let fine = counts.failed.is_empty();
        self.counts.add(counts);
        fine
    }

    fn close(mut self, how: Test) -> ExitCode {
        if how.strict {
            let skipped = std::mem::take(&mut self.counts.skipped);
            self.counts.failed.extend(skipped.into_iter().map(|skip| Named {
                text: format!("skipped, which --strict does not allow: {}", skip.text),
                name: skip.name,
            }));
        }
        println!("\n== times");
        for (name, time) in &self.times {
            println!("{time:>8}  {name}");
        }
        for failure in &self.counts.failed {
            println!("\nFAILED {}\n{}", failure.name, failure.text);
        }
        for skip in &self.counts.skipped {
            println!("SKIPPED {}: {}", skip.name, skip.text);
        }
        for name in &self.left_out {
            println!("LEFT OUT by --fast: {name}");
        }
        println!("\n{}", self.counts.line());
        if self.counts.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn seconds(start: Instant) -> String {
    format!("{:.1} s", start.elapsed().as_secs_f64())
}
