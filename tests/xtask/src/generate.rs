//! What is generated, and by which tests: each compares a file with its source, and rewrites the file
//! when `UPDATE` is set. So checking and writing cannot disagree.

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::Gen;
use crate::config::Workshop;
use crate::counts::{Counts, Reader, Runner};
use crate::process;

/// Packages and their test binaries that keep generated files fresh.
pub(crate) const FRESH: &[(&str, &str)] =
    &[("tidegate-proto", "fresh"), ("tidegate-tests", "structure_generated")];

/// Their names, for those that run the other tests.
pub(crate) const BINARIES: &[&str] = &["fresh", "structure_generated"];

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
    for (package, binary) in FRESH {
        let mut cargo = shop.cargo(["test", "--package", package, "--test", binary]);
        if !check {
            cargo.env("UPDATE", "1");
        }
        let mut reader = Reader::new(Runner::Libtest);
        let status = process::lines(cargo, |line| {
            if let Some(shown) = reader.line(line) {
                eprintln!("{shown}");
            }
        })?;
        counts.add(reader.end(binary, status.success()));
    }
    Ok(counts)
}
