//! Tables for people, JSON and YAML for programs.

use std::io::{self, IsTerminal, Read, Write};

use serde::Serialize;

use super::{CheckArgs, Form, Outcome, OutputArgs};
use crate::{check, text};

/// What a cell tells at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A table with one header line and no frame.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    header: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) const fn new(header: [&'static str; N]) -> Self {
        Self { header, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    pub(super) fn print(&self, out: &mut dyn Write, colours: Colours) -> io::Result<()> {
        let mut widths = self.header.map(|h| h.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        print_row(out, &self.header.map(Cell::from), &widths, Colours::Off)?;
        for row in &self.rows {
            print_row(out, row, &widths, colours)?;
        }
        Ok(())
    }
}

fn print_row(
    out: &mut dyn Write,
    cells: &[Cell],
    widths: &[usize],
    colours: Colours,
) -> io::Result<()> {
    let mut line = String::new();
    let last = cells.len().saturating_sub(1);
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding =
            if i == last { 0 } else { width.saturating_sub(cell.text.chars().count()) + 2 };
        line.push_str(&colours.paint(&cell.text, cell.tone));
        line.push_str(&" ".repeat(padding));
    }
    writeln!(out, "{}", line.trim_end())
}

/// Whether tones show as colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    On,
    Off,
}

impl Colours {
    pub(super) fn of(args: &OutputArgs) -> Self {
        let refused = args.no_color.as_ref().is_some_and(|value| !value.is_empty());
        if !refused && io::stdout().is_terminal() { Self::On } else { Self::Off }
    }

    pub(super) fn paint(self, text: &str, tone: Tone) -> String {
        let code = match (self, tone) {
            (Self::Off, _) | (_, Tone::Plain) => return text.into(),
            (Self::On, Tone::Good) => 32,
            (Self::On, Tone::Warning) => 33,
            (Self::On, Tone::Bad) => 31,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Prints a value as JSON or YAML; `false` when a table is wanted.
pub(super) fn print_value(
    args: &OutputArgs,
    value: &impl Serialize,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    match args.output {
        Form::Table => return Ok(false),
        Form::Json => writeln!(out, "{}", serde_json::to_string_pretty(value)?)?,
        Form::Yaml => write!(out, "{}", serde_saphyr::to_string(value)?)?,
    }
    Ok(true)
}

#[derive(Serialize)]
struct Version {
    name: &'static str,
    version: &'static str,
}

pub(super) fn version(args: &OutputArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let version = Version { name: "tidegate", version: env!("CARGO_PKG_VERSION") };
    if !print_value(args, &version, out)? {
        writeln!(out, "{} {}", version.name, version.version)?;
    }
    Ok(Outcome::Well)
}

/// `tidegate check`.
pub(super) fn check(args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let shown = args.file.display().to_string();
    let content = if shown == "-" {
        let mut content = String::new();
        io::stdin().take(check::FILE_BYTES_MAX).read_to_string(&mut content)?;
        content
    } else {
        text::read_bounded(&args.file, check::FILE_BYTES_MAX)?
    };
    let report = check::check(&shown, &content, args.kind);
    if !print_value(&args.output, &report, out)? {
        for error in &report.errors {
            writeln!(out, "{shown}: {error}")?;
        }
        let kind = report.kind.map_or("unknown", check::FileKind::as_str);
        let colours = Colours::of(&args.output);
        match report.errors.len() {
            0 => writeln!(out, "{shown}: {} ({kind})", colours.paint("ok", Tone::Good))?,
            1 => writeln!(out, "{shown}: {} ({kind})", colours.paint("1 error", Tone::Bad))?,
            n => {
                let words = format!("{n} errors");
                writeln!(out, "{shown}: {} ({kind})", colours.paint(&words, Tone::Bad))?;
            }
        }
    }
    Ok(if report.errors.is_empty() { Outcome::Well } else { Outcome::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(colours: Colours) -> String {
        let mut table = Table::new(["NAME", "STATE", "WHY"]);
        table.row(["a".into(), Cell::toned("down", Tone::Bad), "xid".into()]);
        table.row(["longer".into(), Cell::toned("up", Tone::Good), "".into()]);
        let mut out = Vec::new();
        table.print(&mut out, colours).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_spaces() {
        let expected = "NAME    STATE  WHY\na       down   xid\nlonger  up\n";
        assert_eq!(printed(Colours::Off), expected);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = printed(Colours::On)
            .replace("\u{1b}[31m", "")
            .replace("\u{1b}[32m", "")
            .replace("\u{1b}[0m", "");
        assert_eq!(plain, printed(Colours::Off));
    }
}
