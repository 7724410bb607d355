//! `cargo xtask …`: every command a developer or a build machine needs, in the project's language.
//!
//! What a command says about its own progress goes to stderr; stdout carries results only, so that
//! `--json` output can be piped. Tools live in `.tools/` below the repository and nowhere else.

mod arguments;
mod config;
mod counts;
mod doctor;
mod forward;
mod generate;
mod imports;
mod process;
mod setup;
mod stages;
mod test;
mod wasm;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::config::Workshop;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let shop = Workshop::find()?;
    match command {
        Command::Doctor => Ok(doctor::run(&shop)),
        Command::Setup(wanted) => setup::run(&shop, wanted).map(|()| ExitCode::SUCCESS),
        Command::Wasm(how) => wasm::run(&shop, how).map(|()| ExitCode::SUCCESS),
        Command::Gen(how) => generate::run(&shop, how),
        Command::Demo(passed_on) => forward::demo(&shop, &passed_on),
        Command::Test(how) => test::run(&shop, how),
        Command::Bench(passed_on) => forward::bench(&shop, &passed_on),
        Command::Sim(passed_on) => forward::sim(&shop, &passed_on),
    }
}
