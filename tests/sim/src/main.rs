//! `tidegate-sim`: runs a scenario and prints its ratios. The same seed gives the same bytes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use tidegate_sim::{
    grid,
    scenario::{self, Scenario},
    table,
};

/// Simulates the policies that ship against baselines and an ideal.
#[derive(Debug, Parser)]
#[command(name = "tidegate-sim")]
struct Arguments {
    /// First seed; the same seed gives the same output
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// JSON file that says what to run; without it, the table that ranks the policies
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scenario = match &arguments.scenario {
        Some(path) => read(path)?,
        None => Scenario::default(),
    };
    let all = scenario.points.len() as u64 * scenario.seeds;
    let mut nth = 0;
    let cells = grid::measure(&scenario, arguments.seed, |point, seed| {
        nth += 1;
        let (model, load, proxies) = (point.model.as_str(), point.load, point.proxies);
        eprintln!("{nth}/{all}: {model}, load {load}, {proxies} proxies, seed {seed}");
    });
    if arguments.json {
        println!("{:#}", table::json(&scenario, arguments.seed, &cells));
    } else {
        print!("{}", table::text(&scenario, &cells));
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Scenario> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    scenario::parse(&value).or_else(|errors| {
        errors.iter().for_each(|error| eprintln!("{}: {error}", path.display()));
        bail!("{} mistakes in {}", errors.len(), path.display())
    })
}
