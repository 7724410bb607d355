//! What is printed: a table a person reads, or one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    grid::Cell,
    plane::PlaneKind,
    scenario::{Run, Scenario, name},
    world::Contender,
};

/// Above this a ratio says only that the queue grows without end.
const UNSTABLE: f64 = 20.0;

fn plane(run: &Run) -> Option<PlaneKind> {
    match run.contender {
        Contender::Gate { plane, .. } => Some(plane),
        Contender::Baseline(_) => None,
    }
}

fn label(run: &Run) -> String {
    match plane(run) {
        Some(plane) => {
            let period_s = run.period.as_secs_f64();
            format!("{}, {}, T {period_s} s", name(run.contender), plane.as_str())
        }
        None => name(run.contender).into(),
    }
}

/// A line for each run, a column for each point: P50 and P99 over those of the ideal, and what part failed.
#[must_use]
pub fn text(scenario: &Scenario, cells: &[Cell]) -> String {
    let mut out = String::new();
    let mut header = vec!["P50/P99 over ideal".to_string()];
    header.extend(
        scenario.points.iter().map(|p| format!("{} {} K={}", p.model.as_str(), p.load, p.proxies)),
    );
    let mut lines = vec![header];
    for run in &scenario.runs {
        let mut line = vec![label(run)];
        line.extend(cells.iter().filter(|cell| cell.run == *run).map(shown));
        lines.push(line);
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|c| c.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for (nth, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} "));
        let _ = writeln!(out, "|{}|", padded.collect::<Vec<_>>().join("|"));
        if nth == 0 {
            let rules = widths.iter().map(|width| "-".repeat(width + 2));
            let _ = writeln!(out, "|{}|", rules.collect::<Vec<_>>().join("|"));
        }
    }
    out
}

fn shown(cell: &Cell) -> String {
    let ratio = |r: f64| if r >= UNSTABLE { format!("{r:.0}") } else { format!("{r:.2}") };
    let ratios = format!("{}/{}", ratio(cell.p50_ratio), ratio(cell.p99_ratio));
    let bad = cell.broken + cell.refused;
    if bad == 0 {
        return ratios;
    }
    let part = 100.0 * bad as f64 / (bad + cell.ok) as f64;
    format!("{ratios}, {part:.2} % failed")
}

/// Everything, with the seed that makes it again.
#[must_use]
pub fn json(scenario: &Scenario, seed: u64, cells: &[Cell]) -> Value {
    let rounded = |x: f64| (x * 1e4).round() / 1e4;
    let cell = |cell: &Cell| {
        let reasons: BTreeMap<&str, u64> = cell.reasons.iter().copied().collect();
        json!({
            "model": cell.point.model.as_str(),
            "load": cell.point.load,
            "proxies": cell.point.proxies,
            "policy": name(cell.run.contender),
            "control_plane": plane(&cell.run).map(PlaneKind::as_str),
            "period_ms": plane(&cell.run).map(|_| cell.run.period.as_ms()),
            "p50_ratio": rounded(cell.p50_ratio),
            "p99_ratio": rounded(cell.p99_ratio),
            "p50_s": rounded(cell.quantiles.p50_s),
            "p99_s": rounded(cell.quantiles.p99_s),
            "ok": cell.ok,
            "broken": cell.broken,
            "refused": cell.refused,
            "shares": cell.shares.iter().map(|s| rounded(*s)).collect::<Vec<f64>>(),
            "reasons": reasons,
        })
    };
    json!({
        "seed": seed,
        "seeds": scenario.seeds,
        "requests": scenario.requests,
        "cells": cells.iter().map(cell).collect::<Vec<Value>>(),
    })
}
