//! The form every bench answers in: rows of named cells, and aims with what was reached.
//!
//! One form for all benches, so that a script reads each of them alike: `{"bench","rows","aims"}`. An aim that was
//! missed is a result, not an error; the exit status stays 0 and `met` says so.

use std::collections::HashMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    Count(u64),
    Number(f64),
    /// Not measured here; `null` in JSON and `-` in the table.
    None,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::None, Self::Number)
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => to.serialize_str(text),
            Self::Count(count) => to.serialize_u64(*count),
            Self::Number(number) if number.is_finite() => to.serialize_f64(rounded(*number)),
            Self::Number(_) | Self::None => to.serialize_none(),
        }
    }
}

impl Cell {
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) if number.is_finite() => rounded(*number).to_string(),
            Self::Number(_) | Self::None => "-".to_owned(),
        }
    }
}

/// Four significant digits: more is noise in every figure here.
pub fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(-12, 12));
    (number * scale).round() / scale
}

/// A row keeps the order its cells were given in, in JSON and in the table.
#[derive(Debug, Clone, Default)]
pub struct Row(Vec<(&'static str, Cell)>);

impl Row {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, cell: impl Into<Cell>) -> Self {
        self.0.push((name, cell.into()));
        self
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, cell) in &self.0 {
            map.serialize_entry(name, cell)?;
        }
        map.end()
    }
}

/// Which side of the bound is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    AtMost,
    AtLeast,
}

/// A figure, and what it was meant to be.
#[derive(Debug, Clone)]
pub struct Aim {
    name: String,
    value: Option<f64>,
    bound: Bound,
    limit: f64,
}

impl Aim {
    pub fn new(name: impl Into<String>, value: Option<f64>, bound: Bound, limit: f64) -> Self {
        let value = value.filter(|value| value.is_finite());
        Self { name: name.into(), value, bound, limit }
    }

    /// A figure that could not be taken counts as missed.
    pub fn met(&self) -> bool {
        match (self.value, self.bound) {
            (None, _) => false,
            (Some(value), Bound::AtMost) => value <= self.limit,
            (Some(value), Bound::AtLeast) => value >= self.limit,
        }
    }

    fn aim(&self) -> String {
        match self.bound {
            Bound::AtMost => format!("<= {}", self.limit),
            Bound::AtLeast => format!(">= {}", self.limit),
        }
    }
}

impl Serialize for Aim {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(4))?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("value", &Cell::from(self.value))?;
        map.serialize_entry("aim", &self.aim())?;
        map.serialize_entry("met", &self.met())?;
        map.end()
    }
}

/// What a bench found.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Findings {
    pub bench: &'static str,
    pub rows: Vec<Row>,
    pub aims: Vec<Aim>,
}

impl Findings {
    /// The whole answer on standard output: one JSON object, or tables for a person.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!("{}\n\n{}", table(&self.rows), self.aims_table());
        }
        Ok(())
    }

    fn aims_table(&self) -> Table {
        let mut table = bare(&["aim", "reached", "wanted", "met"]);
        for aim in &self.aims {
            table.add_row([
                aim.name.clone(),
                Cell::from(aim.value).shown(),
                aim.aim(),
                if aim.met() { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table
    }
}

/// Rows as a table; a cell that a row lacks stays empty, columns stand in the order in which they first appear.
pub fn table(rows: &[Row]) -> Table {
    let mut columns: Vec<&'static str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.0) {
        if !columns.contains(name) {
            columns.push(name);
        }
    }
    let mut table = bare(&columns);
    for row in rows {
        let cells: HashMap<&str, &Cell> = row.0.iter().map(|(name, cell)| (*name, cell)).collect();
        table.add_row(
            columns.iter().map(|name| cells.get(name).map_or(String::new(), |cell| cell.shown())),
        );
    }
    for (index, name) in columns.iter().enumerate() {
        let is_text = rows
            .iter()
            .any(|row| row.0.iter().any(|(n, cell)| n == name && matches!(cell, Cell::Text(_))));
        if let Some(column) = table.column_mut(index)
            && !is_text
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn bare(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aim_is_met_at_its_bound_and_missed_past_it() {
        for (value, bound, met) in [
            (Some(2.9), Bound::AtMost, true),
            (Some(3.0), Bound::AtMost, true),
            (Some(3.1), Bound::AtMost, false),
            (Some(2.9), Bound::AtLeast, false),
            (Some(3.0), Bound::AtLeast, true),
            (Some(3.1), Bound::AtLeast, true),
            (None, Bound::AtMost, false),
            (Some(f64::NAN), Bound::AtMost, false),
        ] {
            assert_eq!(Aim::new("x", value, bound, 3.0).met(), met, "{value:?} {bound:?}");
        }
    }

    #[test]
    fn json_keeps_the_order_of_cells_and_rounds_to_four_digits() {
        let findings = Findings {
            bench: "pick",
            rows: vec![
                Row::new()
                    .with("zeta", "a")
                    .with("alpha", 1.234_567)
                    .with("n", 8_usize)
                    .with("gone", None),
            ],
            aims: vec![Aim::new("cost", Some(1.0), Bound::AtMost, 3.0)],
        };
        assert_eq!(
            serde_json::to_string(&findings).expect("plain values"),
            r#"{"bench":"pick","rows":[{"zeta":"a","alpha":1.235,"n":8,"gone":null}],"aims":[{"name":"cost","value":1.0,"aim":"<= 3","met":true}]}"#
        );
    }

    #[test]
    fn rounding_keeps_four_significant_digits() {
        for (number, expected) in
            [(0.0, 0.0), (123_456.0, 123_500.0), (0.001_234_56, 0.001_235), (-9.999_96, -10.0)]
        {
            assert_eq!(rounded(number), expected);
        }
    }
}
