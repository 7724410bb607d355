//! Which tools are there, and how to get those that are not.

use std::process::ExitCode;

use crate::config::Workshop;
use crate::{process, setup, wasm};

struct Row {
    tool: String,
    need: Need,
    found: Option<String>,
    how: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Nothing works without it.
    Required,
    /// Some checks are skipped without it.
    Optional,
    /// `cargo xtask setup` gets it.
    Setup,
}

/// Prints the table; fails only if something required is missing.
pub(crate) fn run(shop: &Workshop) -> ExitCode {
    let rows = rows(shop);
    print!("{}", table(&rows));
    let missing: Vec<&str> = rows
        .iter()
        .filter(|row| row.need == Need::Required && row.found.is_none())
        .map(|row| row.tool.as_str())
        .collect();
    if missing.is_empty() {
        println!("\nnothing required is missing");
        return ExitCode::SUCCESS;
    }
    println!("\nrequired and missing: {}", missing.join(", "));
    ExitCode::FAILURE
}

fn rows(shop: &Workshop) -> Vec<Row> {
    let version = |program: &str, arguments: &[&str]| {
        let file = shop.which(program)?;
        process::first_line(shop.command(file).args(arguments))
    };
    let row = |tool: &str, need, found, how: &str| Row {
        tool: tool.into(),
        need,
        found,
        how: how.into(),
    };
    let venv = shop.which("python3").and_then(|python| {
        let modules = "import venv, ensurepip; print('there')";
        process::first_line(shop.command(python).args(["-c", modules]))
    });
    let target = wasm::way(shop).ok().map(|way| match way {
        wasm::WasmWay::Toolchain => "in the toolchain".to_owned(),
        wasm::WasmWay::Debian(_) => "by Debian's rustc-web".to_owned(),
    });
    let mut rows = vec![
        row("rustc", Need::Required, version("rustc", &["--version"]), "https://rustup.rs"),
        row(
            "rustfmt",
            Need::Optional,
            version("rustfmt", &["--version"]),
            "rustup component add rustfmt",
        ),
        row(
            "clippy",
            Need::Optional,
            version("cargo-clippy", &["--version"]),
            "rustup component add clippy",
        ),
        row(
            "C linker",
            Need::Required,
            version("cc", &["--version"]),
            "Debian, Ubuntu: apt-get install build-essential",
        ),
        row(
            "python3",
            Need::Required,
            version("python3", &["--version"]),
            "Debian, Ubuntu: apt-get install python3",
        ),
        row("python3 venv", Need::Required, venv, "Debian, Ubuntu: apt-get install python3-venv"),
        row(
            "wasm32-wasip1",
            Need::Setup,
            target,
            "cargo xtask setup, or Debian: apt-get install rustc-web cargo-web rust-web-src wasi-libc",
        ),
        row("git", Need::Optional, version("git", &["--version"]), "your package manager"),
        row(
            "cargo-nextest",
            Need::Optional,
            version("cargo-nextest", &["nextest", "--version"]),
            "cargo install cargo-nextest (cargo test stands in)",
        ),
        row(
            "node",
            Need::Optional,
            version("node", &["--version"]),
            "Node.js 20 or newer, with npm",
        ),
    ];
    for tool in setup::pinned() {
        let found = setup::installed(shop, tool.name).map(|found| {
            if found == tool.version { found } else { format!("{found}, wanted {}", tool.version) }
        });
        let how = format!("{} ({})", tool.command, tool.purpose);
        rows.push(row(tool.name, Need::Setup, found, &how));
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let need = |need| match need {
        Need::Required => "required",
        Need::Optional => "optional",
        Need::Setup => "by setup",
    };
    let cells: Vec<[&str; 4]> = rows
        .iter()
        .map(|row| {
            let found = row.found.as_deref().unwrap_or("missing");
            let how = if row.found.is_some() { "" } else { row.how.as_str() };
            [row.tool.as_str(), need(row.need), found, how]
        })
        .collect();
    let head = ["TOOL", "NEED", "FOUND", "HOW TO GET IT"];
    let width = |column: usize| {
        cells.iter().chain([&head]).map(|row| row[column].len()).max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[&str; 4]| {
        let [tool, need, found] = widths;
        let line = format!("{:tool$}  {:need$}  {:found$}  {}", row[0], row[1], row[2], row[3]);
        format!("{}\n", line.trim_end())
    };
    [&head].into_iter().chain(&cells).map(line).collect()
}
