//! What is generated, and by which tests: each compares a file with its source, and rewrites the file
//! when `UPDATE` is set. So checking and writing cannot disagree.

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::Gen;
use crate::config::Workshop;
use crate::counts::{Counts, Reader, Runner};
use crate::process;

/// Tests that keep generated files fresh.
pub(crate) struct Fresh {
    pub(crate) package: &'static str,
    /// Test binary.
    pub(crate) binary: &'static str,
    /// Beginning of the names of the tests, where the binary has others too.
    pub(crate) module: Option<&'static str>,
}

pub(crate) const FRESH: &[Fresh] = &[
    Fresh { package: "tidegate-proto", binary: "fresh", module: None },
    Fresh { package: "tidegate-tests", binary: "structure", module: Some("generated::") },
];

pub(crate) fn run(shop: &Workshop, how: Gen) -> Result<ExitCode> {
    let counts = tests(shop, how.check)?;
    for failure in &counts.failed {
        println!("\n{}\n{}", failure.name, failure.text);
    }
    if !counts.failed.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "{}",
        if how.check { "generated files are fresh" } else { "generated files are written" }
    );
    Ok(ExitCode::SUCCESS)
}

fn tests(shop: &Workshop, check: bool) -> Result<Counts> {
    let mut counts = Counts::default();
    for fresh in FRESH {
        let mut cargo = shop.cargo(["test", "--package", fresh.package, "--test", fresh.binary]);
        cargo.args(fresh.module);
        if !check {
            cargo.env("UPDATE", "1");
        }
        cargo.env("RUST_LIB_BACKTRACE", "0");
        let mut reader = Reader::new(Runner::Libtest);
        let status = process::lines(cargo, |line| {
            if let Some(shown) = reader.line(line) {
                eprintln!("{shown}");
            }
        })?;
        counts.add(reader.end(fresh.binary, status.success()));
    }
    Ok(counts)
}
