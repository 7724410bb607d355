//! Reads the exposition format line by line, keeping wanted names only.
//!
//! A vLLM page has thousands of lines, most of them histogram buckets nobody asked for; a line costs one
//! comparison of its name. Total: any bytes are accepted, a line that does not parse is skipped.

use std::collections::BTreeMap;

use tidegate_reporter_config::EngineKind;

use super::names::{Figure, Fold, WANTED, Wanted};

/// Longest line that is looked at; model servers write far shorter ones.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Most buckets of one histogram.
const BUCKETS_MAX: usize = 256;

/// A histogram's upper bounds in microseconds and cumulative counts, all series added up.
pub(super) type Buckets = BTreeMap<u64, f64>;

/// What one page said.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Only this engine's names count, when it is known beforehand.
    only: Option<EngineKind>,
    /// By place in [`WANTED`].
    numbers: BTreeMap<usize, f64>,
    buckets: BTreeMap<usize, Buckets>,
    rest: Vec<u8>,
    skipping: bool,
}

impl Figures {
    pub(super) fn expecting(only: Option<EngineKind>) -> Self {
        Self { only, ..Self::default() }
    }

    /// Takes the next piece of the body; pieces may end anywhere.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.last() == Some(&b'\n');
            if self.rest.len() + part.len() > LINE_BYTES_MAX {
                self.skipping = true;
            }
            if !self.skipping {
                self.rest.extend_from_slice(part);
            }
            if ends {
                self.end_line();
            }
        }
    }

    /// Takes the last line if nothing ended it.
    pub(super) fn finish(&mut self) {
        self.end_line();
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.rest);
        if !std::mem::take(&mut self.skipping)
            && let Ok(line) = std::str::from_utf8(&line)
        {
            self.line(line.trim());
        }
    }

    fn line(&mut self, line: &str) {
        if line.starts_with('#') {
            return;
        }
        let end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        for (place, wanted) in WANTED.iter().enumerate() {
            let is_bucket = wanted.fold == Fold::Histogram;
            let found = match name.strip_prefix(wanted.name) {
                Some("") => !is_bucket,
                Some("_bucket") => is_bucket,
                _ => false,
            };
            if found && self.only.is_none_or(|kind| kind == wanted.kind) {
                self.series(place, wanted, rest);
            }
        }
    }

    fn series(&mut self, place: usize, wanted: &Wanted, rest: &str) {
        let Some((labels, value)) = split_labels(rest) else { return };
        let Some(value) = value.split_whitespace().next().and_then(|v| v.parse::<f64>().ok())
        else {
            return;
        };
        if let Some((key, expected)) = wanted.label
            && label(labels, key) != Some(expected)
        {
            return;
        }
        match wanted.fold {
            Fold::Sum => *self.numbers.entry(place).or_insert(0.0) += value,
            Fold::Max => {
                let entry = self.numbers.entry(place).or_insert(value);
                *entry = entry.max(value);
            }
            Fold::Histogram => {
                let Some(bound) = label(labels, "le").and_then(bound_micros) else { return };
                let buckets = self.buckets.entry(place).or_default();
                if buckets.len() < BUCKETS_MAX || buckets.contains_key(&bound) {
                    *buckets.entry(bound).or_insert(0.0) += value;
                }
            }
        }
    }

    fn places(&self, figure: Figure) -> impl Iterator<Item = usize> {
        let kind = self.kind();
        WANTED
            .iter()
            .enumerate()
            .filter(move |(_, wanted)| wanted.figure == figure && Some(wanted.kind) == kind)
            .map(|(place, _)| place)
    }

    /// The newest name that is there decides.
    pub(super) fn gauge(&self, figure: Figure) -> Option<f64> {
        self.places(figure).find_map(|place| self.numbers.get(&place).copied())
    }

    pub(super) fn counter(&self, figure: Figure) -> Option<f64> {
        self.gauge(figure)
    }

    pub(super) fn histogram(&self, figure: Figure) -> Option<&Buckets> {
        self.places(figure).find_map(|place| self.buckets.get(&place))
    }

    /// The engine whose names are on the page. Plain Triton's names are also on TensorRT-LLM's page, so
    /// it comes last in the list.
    pub(super) fn kind(&self) -> Option<EngineKind> {
        let first = self.numbers.keys().chain(self.buckets.keys()).min()?;
        WANTED.get(*first).map(|wanted| wanted.kind)
    }
}

/// Splits `{a="b"} 1.0` into labels and the rest; braces may stand inside quotes.
fn split_labels(rest: &str) -> Option<(&str, &str)> {
    let Some(inner) = rest.strip_prefix('{') else { return Some(("", rest)) };
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some((inner.get(..at)?, inner.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// The value of one label; values with escapes are of no interest here.
fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        if name.trim_start_matches([',', ' ']) == key {
            return after.get(..end);
        }
        rest = after.get(end + 1..)?;
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// Seconds as text to whole microseconds; `+Inf` is the largest number.
fn bound_micros(text: &str) -> Option<u64> {
    if text == "+Inf" {
        return Some(u64::MAX);
    }
    super::to_u64(text.parse::<f64>().ok()? * 1e6)
}
